// Call functions of a shared library as another process asks: `caller LIBRARY`, requests on
// standard input, answers on standard output. So a test can call a library of another processor,
// which an emulator runs.
//
// A request is a name and arguments; numbers have 64 bits, in the byte order of both processors:
//
//     name:       size, bytes
//     arguments:  count, then for each its kind: 0, an integer; or 1, a buffer: size, bytes, number
//                 of pointers in it, and for each pointer its offset, and size and bytes of its
//                 data
//     result:     1 if it is a double, else 0
//     keep:       1 if the library keeps pointers to the buffers
//
// The answer has the results as an integer and as a double, and the bytes of all buffers. The name
// "peek" reads memory of this process: address and size are its arguments, and the answer is a
// size, which is smaller if the memory ends, and bytes.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <unistd.h>

namespace {

constexpr size_t kMostArguments = 16;
constexpr size_t kLine = 64, kPage = 4096;

[[noreturn]] void fail(const std::string& text) {
    std::fprintf(stderr, "caller: %s\n", text.c_str());
    std::exit(2);
}

void read_bytes(void* to, size_t size) {
    if (size && std::fread(to, 1, size, stdin) != size)
        std::exit(0);  // the other process has ended
}

uint64_t read_number() {
    uint64_t number;
    read_bytes(&number, sizeof number);
    return number;
}

void write_bytes(const void* from, size_t size) {
    if (size && std::fwrite(from, 1, size, stdout) != size) fail("cannot write an answer");
}

void write_number(uint64_t number) { write_bytes(&number, sizeof number); }

// Memory of an argument, aligned as numpy aligns arrays at best.
class Buffer {
  public:
    Buffer() : size_(read_number()), memory_(size_ + kLine) { read_bytes(data(), size_); }
    uint8_t* data() {
        const auto start = reinterpret_cast<uintptr_t>(memory_.data());
        return memory_.data() + (-start & (kLine - 1));
    }
    size_t size() const { return size_; }

  private:
    size_t size_;
    std::vector<uint8_t> memory_;
};

struct Call {
    std::string name;
    uint64_t arguments[kMostArguments] = {};
    std::deque<Buffer> buffers;  // arguments that are arrays
    std::deque<Buffer> inner;    // arrays that pointers in these buffers name
};

void read_buffer(Call& call, uint64_t& argument) {
    uint8_t* const data = call.buffers.emplace_back().data();
    for (uint64_t left = read_number(); left; --left) {
        const uint64_t offset = read_number();
        const uint8_t* pointed = call.inner.emplace_back().data();
        std::memcpy(data + offset, &pointed, sizeof pointed);
    }
    argument = reinterpret_cast<uintptr_t>(data);
}

Call read_call() {
    Call call;
    call.name.resize(read_number());
    read_bytes(call.name.data(), call.name.size());
    const uint64_t count = read_number();
    if (count > kMostArguments) fail(call.name + " has too many arguments");
    for (uint64_t i = 0; i < count; ++i) {
        if (read_number())
            read_buffer(call, call.arguments[i]);
        else
            call.arguments[i] = read_number();
    }
    return call;
}

// Copy memory up to the end of its page; return the number of bytes, 0 if it cannot be read.
size_t copy_page(const uint8_t* from, size_t most, uint8_t* to) {
    int ends[2];
    if (pipe(ends)) fail("cannot make a pipe");
    const size_t left = kPage - (reinterpret_cast<uintptr_t>(from) & (kPage - 1));
    const ssize_t written = write(ends[1], from, std::min(left, most));  // fails, but no signal
    const ssize_t got = written < 0 ? 0 : read(ends[0], to, static_cast<size_t>(written));
    close(ends[0]);
    close(ends[1]);
    return got < 0 ? 0 : static_cast<size_t>(got);
}

void peek(const Call& call) {
    std::vector<uint8_t> bytes(call.arguments[1]);
    const auto* from = reinterpret_cast<const uint8_t*>(static_cast<uintptr_t>(call.arguments[0]));
    size_t size = 0, got = 1;
    for (; got && size < bytes.size(); size += got)
        got = copy_page(from + size, bytes.size() - size, bytes.data() + size);
    write_number(size);
    write_bytes(bytes.data(), size);
}

// Integers and pointers are passed alike, in registers and in words of the stack.
template <class Result> Result call_function(void* function, const uint64_t (&a)[kMostArguments]) {
    using N = uint64_t;
    using Function = Result (*)(N, N, N, N, N, N, N, N, N, N, N, N, N, N, N, N);
    return reinterpret_cast<Function>(function)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7],
                                                a[8], a[9], a[10], a[11], a[12], a[13], a[14],
                                                a[15]);
}

void answer(Call& call, void* library) {
    void* const function = dlsym(library, call.name.c_str());
    if (!function) fail("the library must have a function " + call.name);
    const bool is_double = read_number() != 0, keep = read_number() != 0;
    uint64_t integer = 0;
    double number = 0;
    if (is_double)
        number = call_function<double>(function, call.arguments);
    else
        integer = call_function<uint64_t>(function, call.arguments);
    write_number(integer);
    write_bytes(&number, sizeof number);
    for (Buffer& buffer : call.buffers) write_bytes(buffer.data(), buffer.size());
    static std::deque<Call> kept;
    if (keep) kept.push_back(std::move(call));
}

}  // namespace

int main(int count, char** arguments) {
    if (count != 2) fail("needs the path of a library");
    void* const library = dlopen(arguments[1], RTLD_NOW);
    if (!library) fail(dlerror());
    for (;;) {
        Call call = read_call();
        if (call.name == "peek")
            peek(call);
        else
            answer(call, library);
        std::fflush(stdout);
    }
}
