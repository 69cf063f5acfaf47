// A file that is read at any offset, bypassing the system's cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <sys/stat.h>

namespace cassandra::stream {

constexpr int64_t PAGE = 4096;

// Memory aligned for direct reads.
class Room {
  public:
    explicit Room(size_t bytes);
    ~Room();
    Room(Room&& other) noexcept : data_(other.data_) { other.data_ = nullptr; }
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;
    uint8_t* get() const { return data_; }

  private:
    uint8_t* data_;
};

// All errors are std::runtime_error with a line that names the file.
class File {
  public:
    explicit File(const char* path);
    ~File();
    File(const File&) = delete;
    File& operator=(const File&) = delete;

    // Return the size of a room for `bytes` bytes of the file at any offset, including padding of
    // at least the codec's SLACK after them.
    static int64_t room(int64_t bytes);
    // Read into a room; return the start of the bytes in it.
    const uint8_t* read(int64_t offset, int64_t bytes, uint8_t* room) const;
    // Throw if the file was written to since it was opened.
    void require_same() const;

  private:
    struct stat state() const;
    [[noreturn]] void fail(const char* what, int error = 0) const;

    std::string path_;
    bool direct_ = true;
    int file_;
    struct stat opened_;
};

}  // namespace cassandra::stream
