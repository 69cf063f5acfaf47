// Run a program of this processor, count the instructions between each two signals SIGUSR1, one
// step at a time, and write a line to standard error for each: `steps PROGRAM ARGUMENTS...`.
#include <csignal>
#include <cstdio>

#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char** arguments) {
    if (count < 2) return 2;
    const pid_t child = fork();
    if (child < 0) return 2;
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
        execvp(arguments[1], arguments + 1);
        _exit(2);
    }
    std::setvbuf(stderr, nullptr, _IOFBF, 1 << 16);
    bool counts = false;
    int status = 0;
    while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
        const int signal = WSTOPSIG(status);
        if (signal == SIGUSR1)
            counts = !counts;
        else if (counts && signal == SIGTRAP)
            std::fputs("step\n", stderr);
        const bool own = signal == SIGTRAP || signal == SIGUSR1;
        ptrace(counts ? PTRACE_SINGLESTEP : PTRACE_CONT, child, nullptr, own ? 0L : long{signal});
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 2;
}
