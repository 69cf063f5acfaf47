// A file that is read at any place, past the cache of the system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <sys/stat.h>

namespace cassandra::stream {

constexpr int64_t PAGE = 4096;

// Memory that is aligned as reads need it.
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

    // Bytes of a room that takes so many of the file, wherever they are; SLACK of the codec and
    // more lies behind them.
    static int64_t room(int64_t bytes);
    // Reads into a room; returns where the bytes are in it.
    const uint8_t* read(int64_t offset, int64_t bytes, uint8_t* room) const;
    // Throws if the file was written to since it was opened.
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
