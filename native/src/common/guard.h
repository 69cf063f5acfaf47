// Exceptions must not leave an entry point.
#pragma once

#include <exception>
#include <new>

namespace cassandra {

// Returned by entry points that failed; cassandra_error() returns the message.
constexpr int FAILED = -2;

void keep_error(const char* text) noexcept;

// Run work that may throw; return false if it threw.
template <class Work> bool attempt(Work work) noexcept {
    try {
        work();
        return true;
    } catch (const std::bad_alloc&) {
        keep_error("there is not enough memory");
    } catch (const std::exception& error) {
        keep_error(error.what());
    }
    return false;
}

}  // namespace cassandra
