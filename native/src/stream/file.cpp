#include "stream/file.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>

#include <fcntl.h>
#include <unistd.h>

#include "codec/codec.h"

namespace cassandra::stream {
namespace {

int64_t round_up(int64_t n) { return (n + PAGE - 1) / PAGE * PAGE; }

}  // namespace

Room::Room(size_t bytes) {
    data_ = static_cast<uint8_t*>(std::aligned_alloc(PAGE, static_cast<size_t>(round_up(bytes))));
    if (!data_) throw std::bad_alloc();
    std::memset(data_, 0, bytes);
}

Room::~Room() { std::free(data_); }

File::File(const char* path) : path_(path), file_(open(path, O_RDONLY | O_CLOEXEC | O_DIRECT)) {
    if (file_ >= 0) {  // some systems fail only at the first read
        const Room room(PAGE);
        if (pread(file_, room.get(), PAGE, 0) < 0) close(file_), file_ = -1;
    }
    if (file_ < 0) direct_ = false, file_ = open(path, O_RDONLY | O_CLOEXEC);
    if (file_ < 0) fail("must be a file that can be read", errno);
    opened_ = state();
}

File::~File() { close(file_); }

int64_t File::room(int64_t bytes) { return round_up(bytes + 2 * PAGE + codec::OVERRUN); }

const uint8_t* File::read(int64_t offset, int64_t bytes, uint8_t* room) const {
    const int64_t first = offset / PAGE * PAGE, needed = offset + bytes - first;
    int64_t have = 0;
    while (have < needed) {
        if (direct_ && have % PAGE) fail("must not shrink while it is read");
        const auto wanted = static_cast<size_t>(round_up(needed) - have);
        const ssize_t got = pread(file_, room + have, wanted, first + have);
        if (got < 0 && errno != EINTR) fail("must be readable", errno);
        if (got == 0) fail("must not shrink while it is read");
        have += got < 0 ? 0 : got;
    }
    if (!direct_) posix_fadvise(file_, first, have, POSIX_FADV_DONTNEED);
    return room + (offset - first);
}

void File::require_same() const {
    const struct stat now = state();
    const auto &then = opened_.st_mtim, &written = now.st_mtim;
    if (now.st_size != opened_.st_size || written.tv_sec != then.tv_sec ||
        written.tv_nsec != then.tv_nsec)
        fail("must not be written to while it is used");
}

struct stat File::state() const {
    struct stat found;
    if (fstat(file_, &found)) fail("must be readable", errno);
    return found;
}

void File::fail(const char* what, int error) const {
    std::string text = path_ + " " + what;
    if (error) text += std::string(" (") + std::strerror(error) + ")";
    throw std::runtime_error(text);
}

}  // namespace cassandra::stream
