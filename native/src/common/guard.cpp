#include "common/guard.h"

#include <cstring>

#include "common/isa.h"

namespace {

thread_local char text_of_error[256];

}  // namespace

void cassandra::keep_error(const char* text) noexcept {
    std::strncpy(text_of_error, text, sizeof text_of_error - 1);
}

// Return the error message of this thread's last failed call.
CASSANDRA_API const char* cassandra_error() { return text_of_error; }
