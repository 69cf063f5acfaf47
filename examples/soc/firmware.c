/* Decode packed tensors of simulated memory through the DMA, compare checksums, provoke faults.

   The image in memory is that of image.py: a count, then a struct tensor for each tensor. */
#include <generated/csr.h>
#include <generated/mem.h>
#include <generated/soc.h>
#include <system.h>

#include "cassandra.h"

#define AT(type, address) ((type*)(uintptr_t)(address))
#define LIMIT 100000u    /* steps of a job */
#define NAME 12u         /* columns of a name */
#define SCRATCH 0x20000u /* bytes behind the image for values */

struct tensor {
    uint32_t name[2];
    uint32_t values, segment_values, scheme, truncated, log2_group, segments;
    uint32_t speculation, verification, directory, codebook, codebook_size; /* bytes from here */
    uint32_t checksum[2];                                                   /* draft, target */
};

static cassandra_device device;
static uint32_t wrong;

static void put_char(char letter) {
    while (uart_txfull_read() != 0u) {
    }
    uart_rxtx_write((uint32_t)letter);
}

static void put_text(const char* text) {
    while (*text != '\0') {
        put_char(*text++);
    }
}

static void put_name(const char* name) {
    for (uint32_t width = 0u; width < NAME; width++) {
        put_char(*name == '\0' ? ' ' : *name++);
    }
}

static void put_number(uint32_t number, uint32_t width) {
    char digits[10];
    uint32_t count = 0u;

    do {
        digits[count++] = (char)('0' + (char)(number % 10u));
        number /= 10u;
    } while (number != 0u);
    for (uint32_t i = count; i < width; i++) {
        put_char(' ');
    }
    while (count > 0u) {
        put_char(digits[--count]);
    }
}

static void put_verdict(bool right) {
    put_text(right ? "  ok\n" : "  WRONG\n");
    wrong += right ? 0u : 1u;
}

/* Interrupts that wait, before any mask: a register of VexRiscv's interrupt plugin. */
static uint32_t pending(void) {
    uint32_t value;
    __asm__ volatile("csrr %0, 0xfc0" : "=r"(value));
    return value;
}

static void enable_pending(void) {
    __asm__ volatile("csrw 0xbc0, %0" : : "r"(1u << CASSANDRA_INTERRUPT));
}

/* Where values are written: behind the image, which ends where the first word says. */
static uint32_t output(void) { return *AT(const uint32_t, MAIN_RAM_BASE); }

static void take_values(uint32_t bytes) {
    writer_enable_write(0u);
    writer_base_write(output());
    writer_length_write(bytes);
    writer_enable_write(1u);
}

static cassandra_decode job_of(const struct tensor* tensor, bool target) {
    const uint32_t base = (uint32_t)(uintptr_t)tensor;
    return (cassandra_decode){
        .layout =
            {
                .values = tensor->values,
                .segment_values = tensor->segment_values,
                .scheme = tensor->scheme,
                .truncated = tensor->truncated,
                .log2_group = tensor->log2_group,
            },
        .speculation = base + tensor->speculation,
        .verification = base + tensor->verification,
        .directory = AT(const cassandra_entry, base + tensor->directory),
        .segments = tensor->segments,
        .target = target,
    };
}

/* Run a job to its end: one step for each interrupt, or one after the other. */
static cassandra_status run(cassandra_decode* job, bool interrupt) {
    cassandra_status status = cassandra_decode_start(&device, job, interrupt);
    if (status == CASSANDRA_OK) {
        status = CASSANDRA_BUSY;
    }
    for (uint32_t i = 0u; i < LIMIT && status == CASSANDRA_BUSY; i++) {
        if (!interrupt || i == 0u || (pending() & (1u << CASSANDRA_INTERRUPT)) != 0u) {
            status = cassandra_decode_step(&device, job);
        }
    }
    return status;
}

/* The writer puts the highest byte of a word first. */
static uint32_t checksum(uint32_t count) {
    const volatile uint32_t* words = AT(const volatile uint32_t, output());
    uint32_t sum = 0u;

    flush_cpu_dcache(); /* it does not see what the writer writes */
    for (uint32_t i = 0u; i < count; i++) {
        const uint32_t word = __builtin_bswap32(words[i / 2u]);
        sum = 31u * sum + (i % 2u == 0u ? word & 0xffffu : word >> 16u);
    }
    return sum;
}

static void decode(const struct tensor* tensor, bool target) {
    cassandra_decode job = job_of(tensor, target);
    const uint8_t* book = AT(const uint8_t, (uintptr_t)tensor + tensor->codebook);
    const uint32_t beats = (tensor->values + 7u) / 8u;

    (void)cassandra_load_codebook(&device, 0u, book, tensor->codebook_size);
    take_values(16u * beats);
    const cassandra_status status = run(&job, target);
    while (status == CASSANDRA_OK && writer_done_read() == 0u) {
    }
    put_name((const char*)tensor->name);
    put_name(target ? "target" : "draft");
    put_number(tensor->values, 8u);
    put_number(cassandra_memory_read(AT(void, CASSANDRA_BASE), CASSANDRA_COUNT_CYCLES_LOW), 9u);
    put_verdict(status == CASSANDRA_OK && checksum(tensor->values) == tensor->checksum[target]);
}

static void recover(void) {
    cassandra_status status = CASSANDRA_BUSY;
    for (uint32_t i = 0u; i < LIMIT && status == CASSANDRA_BUSY; i++) {
        status = cassandra_recover(&device);
    }
    if (status != CASSANDRA_OK) {
        main_reset_decoder_write(1u);
        main_reset_decoder_write(0u);
        put_text("(reset) ");
    }
}

/* A job has ended with a fault that has a cause; the device can be used again. */
static void judge(const char* name, bool faulted, uint32_t cause) {
    recover();
    put_name(name);
    put_number(device.fault.causes, 9u);
    put_verdict(faulted && (device.fault.causes & cause) != 0u);
}

static void expect(const char* name, cassandra_decode* job, uint32_t cause) {
    take_values(SCRATCH);
    judge(name, run(job, false) == CASSANDRA_FAULT, cause);
}

/* Copy a job's speculation data behind the values, and overwrite its first bytes. */
static void overwrite(cassandra_decode* job, uint8_t byte, uint32_t count) {
    const volatile uint8_t* from = AT(const volatile uint8_t, job->speculation);
    volatile uint8_t* to = AT(volatile uint8_t, output() + SCRATCH);
    const uint32_t size = device.superblock * job->directory->speculation_length;

    for (uint32_t i = 0u; i < size; i++) {
        to[i] = i < count ? byte : from[i];
    }
    job->speculation = output() + SCRATCH;
}

/* The job of a tensor's first segment, by an entry that can be changed. */
static cassandra_decode first_of(const struct tensor* tensor, cassandra_entry* entry, bool target) {
    cassandra_decode job = job_of(tensor, target);
    *entry = *job.directory;
    job.directory = entry;
    job.segments = 1u;
    job.layout.values = tensor->segment_values;
    return job;
}

static void overflow(cassandra_decode* job) {
    void* registers = AT(void, CASSANDRA_BASE);
    (void)cassandra_decode_start(&device, job, false);
    cassandra_memory_write(registers, CASSANDRA_CONTROL, 0u);
    for (uint32_t i = 0u; i <= device.queue; i++) {
        cassandra_memory_write(registers, CASSANDRA_START, CASSANDRA_START_PUSH(1u));
    }
    judge("overflow", true, CASSANDRA_ERROR_OVERFLOW_MASK);
}

static void code_faults(const struct tensor* tensor) {
    cassandra_entry entry;
    const uint8_t* book = AT(const uint8_t, (uintptr_t)tensor + tensor->codebook);
    cassandra_decode job = first_of(tensor, &entry, false);

    (void)cassandra_load_codebook(&device, 0u, book, 1u);
    expect("rank", &job, CASSANDRA_ERROR_RANK_MASK);
    (void)cassandra_load_codebook(&device, 0u, book, tensor->codebook_size);
    entry.flags = 0u; /* no mask: the region begins with codes */
    overwrite(&job, 0u, 32u);
    expect("code", &job, CASSANDRA_ERROR_CODE_MASK);
}

static void group_faults(const struct tensor* tensor) {
    cassandra_entry entry;
    cassandra_decode job = first_of(tensor, &entry, true);

    overwrite(&job, 0u, 1u); /* the exponent of the first group */
    expect("group", &job, CASSANDRA_ERROR_GROUP_MASK);
    overwrite(&job, 1u, 1u);
    expect("window", &job, CASSANDRA_ERROR_WINDOW_MASK);
    job.layout.log2_group = 15u;
    expect("command", &job, CASSANDRA_ERROR_COMMAND_MASK);
}

static void bus_faults(const struct tensor* tensor) {
    cassandra_entry entry;
    cassandra_decode job = first_of(tensor, &entry, false);

    job.speculation = 0x50000000u;
    expect("slave", &job, CASSANDRA_ERROR_SLAVE_MASK);
    job.speculation = 0x60000000u;
    expect("decode", &job, CASSANDRA_ERROR_DECODE_MASK);
}

static void length_faults(const struct tensor* tensor) {
    cassandra_entry entry;
    cassandra_decode job = first_of(tensor, &entry, false);

    entry.speculation_length--;
    expect("short", &job, CASSANDRA_ERROR_SHORT_MASK);
    entry.speculation_length += 2u;
    expect("long", &job, CASSANDRA_ERROR_LONG_MASK);
    overflow(&job);
    entry.speculation_length = 0u;
    expect("descriptor", &job, CASSANDRA_ERROR_DESCRIPTOR_MASK);
}

int main(void) {
    const cassandra_bus bus = {cassandra_memory_read, cassandra_memory_write,
                               AT(void, CASSANDRA_BASE)};
    const uint32_t* image = AT(const uint32_t, MAIN_RAM_BASE);
    const struct tensor* first = AT(const struct tensor, MAIN_RAM_BASE + image[2]);
    const struct tensor* last = AT(const struct tensor, MAIN_RAM_BASE + image[1u + image[1]]);

    enable_pending();
    put_text("\nCassandra in a LiteX SoC\n");
    if (cassandra_probe(&device, &bus) != CASSANDRA_OK) {
        put_verdict(false);
    }
    put_text("tensor      mode          values   cycles\n");
    for (uint32_t i = 0u; i < image[1]; i++) {
        const struct tensor* tensor = AT(const struct tensor, MAIN_RAM_BASE + image[2u + i]);
        decode(tensor, false);
        decode(tensor, true);
    }
    put_text("fault          causes\n");
    code_faults(first); /* unary */
    group_faults(last); /* exact */
    length_faults(last);
    bus_faults(last);
    decode(first, true);
    decode(last, true);
    put_text(wrong == 0u ? "PASS\n" : "FAIL\n");
    while (uart_txempty_read() == 0u) {
    }
    main_finish_write(1u);
    return 0;
}
