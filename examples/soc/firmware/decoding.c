/* Decode packed tensors of simulated memory, compare checksums, provoke faults of the decoder. */
#include "firmware.h"

static cassandra_device decoder;

bool find_decoder(void) { return find(&decoder, DECODER_BASE) && !decoder.encodes; }

static void take_values(uint32_t bytes) {
    writer_enable_write(0u);
    writer_base_write(area(AREA_VALUES));
    writer_length_write(bytes);
    writer_enable_write(1u);
}

static cassandra_decode job_of(const struct tensor* tensor, bool target) {
    return (cassandra_decode){
        .layout = layout_of(tensor),
        .speculation = (uintptr_t)part_of(tensor, tensor->speculation),
        .verification = (uintptr_t)part_of(tensor, tensor->verification),
        .directory = (const cassandra_entry*)part_of(tensor, tensor->directory),
        .segments = tensor->segments,
        .target = target,
    };
}

/* Run a job to its end: one step for each interrupt, or one after the other. */
static cassandra_status run(cassandra_decode* job, bool interrupt) {
    cassandra_status status = cassandra_decode_start(&decoder, job, interrupt);
    if (status == CASSANDRA_OK) {
        status = CASSANDRA_BUSY;
    }
    for (uint32_t i = 0u; i < LIMIT && status == CASSANDRA_BUSY; i++) {
        if (!interrupt || i == 0u || interrupts(DECODER_INTERRUPT)) {
            status = cassandra_decode_step(&decoder, job);
        }
    }
    return status;
}

static uint32_t checksum(uint32_t count) {
    const volatile uint16_t* values = AT(const volatile uint16_t, area(AREA_VALUES));
    uint32_t sum = 0u;

    flush_cpu_dcache(); /* it does not see what the writer writes */
    for (uint32_t i = 0u; i < count; i++) {
        sum = 31u * sum + values[i];
    }
    return sum;
}

void decode(const struct tensor* tensor, bool target, bool stored) {
    cassandra_decode job = job_of(tensor, target);
    const uint32_t beats = (tensor->values + 7u) / 8u;

    if (stored) {
        job.speculation = area(AREA_STORE);
        job.verification = area(AREA_STORE + 1u);
        job.directory = AT(const cassandra_entry, area(AREA_ENTRIES));
    }
    load_codebook(&decoder, tensor);
    take_values(16u * beats);
    const cassandra_status status = run(&job, target);
    while (status == CASSANDRA_OK && writer_done_read() == 0u) {
    }
    put_row(&decoder, tensor, target ? "decode target" : "decode draft",
            status == CASSANDRA_OK && checksum(tensor->values) == tensor->checksum[target]);
}

static void expect(const char* name, cassandra_decode* job, uint32_t cause) {
    take_values(AREA);
    judge(&decoder, name, run(job, false) == CASSANDRA_FAULT, cause);
}

/* Copy a job's speculation data, and overwrite its first bytes. */
static void overwrite(cassandra_decode* job, uint8_t byte, uint32_t count) {
    const volatile uint8_t* from = AT(const volatile uint8_t, job->speculation);
    volatile uint8_t* to = AT(volatile uint8_t, area(AREA_CHANGED));
    const uint32_t size = decoder.superblock * job->directory->speculation_length;

    for (uint32_t i = 0u; i < size; i++) {
        to[i] = i < count ? byte : from[i];
    }
    job->speculation = area(AREA_CHANGED);
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

static void code_faults(const struct tensor* tensor) {
    cassandra_entry entry;
    cassandra_decode job = first_of(tensor, &entry, false);

    (void)cassandra_load_codebook(&decoder, 0u, part_of(tensor, tensor->codebook), 1u);
    expect("rank", &job, CASSANDRA_ERROR_RANK_MASK);
    load_codebook(&decoder, tensor);
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

static void length_faults(const struct tensor* tensor) {
    cassandra_entry entry;
    cassandra_decode job = first_of(tensor, &entry, false);

    entry.speculation_length--;
    expect("short", &job, CASSANDRA_ERROR_SHORT_MASK);
    entry.speculation_length += 2u;
    expect("long", &job, CASSANDRA_ERROR_LONG_MASK);
    overflow(&decoder, "overflow");
    entry.speculation_length = 0u;
    expect("descriptor", &job, CASSANDRA_ERROR_DESCRIPTOR_MASK);
}

static void bus_faults(const struct tensor* tensor) {
    cassandra_entry entry;
    cassandra_decode job = first_of(tensor, &entry, false);

    job.speculation = SLVERR_BASE;
    expect("slave", &job, CASSANDRA_ERROR_SLAVE_MASK);
    job.speculation = DECERR_BASE;
    expect("decode", &job, CASSANDRA_ERROR_DECODE_MASK);
}

/* Stop a job whose reads are outstanding; then the whole tensor must be right. */
static void stops(const struct tensor* tensor) {
    for (uint32_t pulses = 0u; pulses < 2u; pulses++) {
        cassandra_decode job = job_of(tensor, true);
        load_codebook(&decoder, tensor);
        take_values(AREA);
        bool right = cassandra_decode_start(&decoder, &job, true) == CASSANDRA_OK &&
                     cassandra_decode_step(&decoder, &job) == CASSANDRA_BUSY;
        if (pulses != 0u) {
            main_reset_devices_write(1u);
            main_reset_devices_write(0u);
            right = right && cassandra_decode_step(&decoder, &job) == CASSANDRA_LOST;
        }
        right = abort_job(&decoder) && right && !interrupts(DECODER_INTERRUPT);
        put_event(&decoder, pulses != 0u ? "core_rst" : "abort", right);
        decode(tensor, true, false);
    }
}

void decoder_faults(const struct tensor* unary, const struct tensor* exact) {
    code_faults(unary);
    group_faults(exact);
    length_faults(exact);
    bus_faults(exact);
    stops(unary);
}
