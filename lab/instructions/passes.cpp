// Multiply one matrix with rows of input several times, on one thread: `passes LIBRARY ISA FORM
// GROUP OUTPUTS INPUTS ROWS REPEATS`. Numbers are those of the library, and values come on standard
// input. The library asks for the time before and after each pass. Here it is always zero, so that
// counts do not depend on the clock; and each question raises a signal, which this program ignores
// and steps.cpp sees.
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include <dlfcn.h>

extern "C" int clock_gettime(clockid_t, timespec* time) noexcept {
    *time = timespec{};
    return std::raise(SIGUSR1);
}

int main(int count, char** arguments) {
    if (count != 9) return 2;
    std::signal(SIGUSR1, SIG_IGN);
    void* const library = dlopen(arguments[1], RTLD_NOW);
    if (!library) return 2;
    int numbers[9] = {};
    for (int i = 2; i < count; ++i) numbers[i] = std::atoi(arguments[i]);
    const int form = numbers[3], out = numbers[5], in = numbers[6];
    std::vector<uint16_t> values(static_cast<size_t>(out) * static_cast<size_t>(in));
    if (std::fread(values.data(), 2, values.size(), stdin) != values.size()) return 2;

    using SetIsa = void (*)(int);
    using New = void* (*)(const uint16_t*, int64_t, int64_t, int, int, void*, int, void*);
    using Form = int (*)(void*);
    using Time = bool (*)(void* const*, int, int, int, int, double*);
    const auto find = [&](const char* name) { return dlsym(library, name); };
    reinterpret_cast<SetIsa>(find("cassandra_set_isa"))(numbers[2]);
    void* const layer = reinterpret_cast<New>(find("cassandra_linear_new"))(
        values.data(), out, in, form, numbers[4], nullptr, 1, nullptr);
    if (!layer || reinterpret_cast<Form>(find("cassandra_linear_form"))(layer) != form) return 2;
    std::vector<double> seconds(static_cast<size_t>(numbers[8]));
    const auto run = reinterpret_cast<Time>(find("cassandra_linear_time"));
    return run(&layer, 1, numbers[7], 1, numbers[8], seconds.data()) ? 0 : 2;
}
