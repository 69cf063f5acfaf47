/* Encode keys and values into a store, compare it with golden's, provoke faults of the encoder. */
#include "firmware.h"

#define UNARY 0u
#define MX 1u
#define INFINITY 0x7f80u
#define STEP 8u /* bytes of a beat of values */

/* Values that are offered, one packet after the other. */
struct source {
    uint32_t from, left, packet; /* bytes */
};

static cassandra_device encoder;

bool find_encoder(void) { return find(&encoder, ENCODER_BASE) && encoder.encodes; }

static cassandra_encode job_of(const struct tensor* tensor) {
    return (cassandra_encode){
        .layout = layout_of(tensor),
        .speculation = area(AREA_STORE),
        .verification = area(AREA_STORE + 1u),
        .speculation_room = AREA,
        .verification_room = AREA,
        .directory = AT(cassandra_entry, area(AREA_ENTRIES)),
        .segments = tensor->segments,
        .vector = tensor->vector,
        .keep = tensor->keep,
        .saturate = tensor->scheme == MX,
        .mask = tensor->scheme == UNARY || tensor->keep < tensor->vector,
    };
}

/* Offer the next packet, if the one before has been read. */
static void offer(struct source* source) {
    if (source->left == 0u || (reader_enable_read() != 0u && reader_done_read() == 0u)) {
        return;
    }
    const uint32_t bytes = source->left < source->packet ? source->left : source->packet;
    reader_enable_write(0u);
    reader_base_write(source->from);
    reader_length_write(bytes);
    reader_enable_write(1u);
    source->from += bytes;
    source->left -= bytes;
}

/* Run a job to its end: one step for each interrupt, or one after the other. */
static cassandra_status run(cassandra_encode* job, struct source source, bool interrupt) {
    cassandra_status status = cassandra_encode_start(&encoder, job, interrupt);
    if (status == CASSANDRA_OK) {
        status = CASSANDRA_BUSY;
    }
    for (uint32_t i = 0u; i < LIMIT && status == CASSANDRA_BUSY; i++) {
        offer(&source);
        if (!interrupt || i == 0u || interrupts(ENCODER_INTERRUPT)) {
            status = cassandra_encode_step(&encoder, job);
        }
    }
    return status;
}

static bool same(uint32_t found, const uint8_t* expected, uint32_t size) {
    const volatile uint8_t* bytes = AT(const volatile uint8_t, found);
    uint32_t equal = 0u;
    while (equal < size && bytes[equal] == expected[equal]) {
        equal++;
    }
    return equal == size;
}

/* Whether the store has golden's bytes. */
static bool stored(const struct tensor* tensor) {
    flush_cpu_dcache(); /* it does not see what the encoder writes */
    return same(area(AREA_STORE), part_of(tensor, tensor->speculation), tensor->speculation_size) &&
           same(area(AREA_STORE + 1u), part_of(tensor, tensor->verification),
                tensor->verification_size) &&
           same(area(AREA_ENTRIES), part_of(tensor, tensor->directory), tensor->directory_size);
}

void encode(const struct tensor* tensor) {
    cassandra_encode job = job_of(tensor);
    const struct source source = {(uint32_t)(uintptr_t)part_of(tensor, tensor->plain),
                                  tensor->plain_size, 2u * tensor->segment_values};

    load_codebook(&encoder, tensor);
    const cassandra_status status = run(&job, source, true);
    put_row(&encoder, tensor, "encode", status == CASSANDRA_OK && stored(tensor));
}

/* The job of a tensor's first segment. */
static cassandra_encode first_of(const struct tensor* tensor, struct source* source) {
    cassandra_encode job = job_of(tensor);
    job.segments = 1u;
    job.layout.values = tensor->segment_values;
    source->from = (uint32_t)(uintptr_t)part_of(tensor, tensor->plain);
    source->left = source->packet = 2u * tensor->segment_values;
    return job;
}

static void expect(const char* name, cassandra_encode* job, struct source source, uint32_t cause) {
    judge(&encoder, name, run(job, source, false) == CASSANDRA_FAULT, cause);
}

static void packet_faults(const struct tensor* tensor) {
    struct source source;
    cassandra_encode job = first_of(tensor, &source);

    source.left -= STEP;
    expect("encode_short", &job, source, CASSANDRA_ERROR_ENCODE_SHORT_MASK);
    source.left += 2u * STEP;
    source.packet += STEP;
    expect("encode_long", &job, source, CASSANDRA_ERROR_ENCODE_LONG_MASK);
}

static void place_faults(const struct tensor* tensor) {
    struct source source;
    cassandra_encode job = first_of(tensor, &source);

    job.speculation_room = encoder.superblock;
    expect("room", &job, source, CASSANDRA_ERROR_ROOM_MASK);
    job.speculation_room = AREA;
    job.speculation = job.verification = SLVERR_BASE;
    expect("slave", &job, source, CASSANDRA_ERROR_SLAVE_MASK);
    job.speculation = job.verification = DECERR_BASE;
    expect("decode", &job, source, CASSANDRA_ERROR_DECODE_MASK);
}

static void unary_faults(const struct tensor* tensor) {
    struct source source;
    cassandra_encode job = first_of(tensor, &source);

    (void)cassandra_load_codebook(&encoder, 0u, part_of(tensor, tensor->codebook), 1u);
    job.mask = false;
    job.keep = job.vector;
    expect("encode_miss", &job, source, CASSANDRA_ERROR_ENCODE_MISS_MASK);
    overflow(&encoder, "overflow");
    job.layout.slot = encoder.books - 1u; /* no codebook is there */
    source.left = 0u;
    expect("descriptor", &job, source, CASSANDRA_ERROR_DESCRIPTOR_MASK);
}

static void mx_faults(const struct tensor* tensor) {
    struct source source;
    cassandra_encode job = first_of(tensor, &source);
    const uint16_t* from = AT(const uint16_t, source.from);
    volatile uint16_t* to = AT(volatile uint16_t, area(AREA_CHANGED));

    for (uint32_t i = 0u; i < tensor->segment_values; i++) {
        to[i] = i == 0u ? INFINITY : from[i];
    }
    source.from = area(AREA_CHANGED);
    job.saturate = false;
    expect("encode_nonfinite", &job, source, CASSANDRA_ERROR_ENCODE_NONFINITE_MASK);
    job.layout.log2_group = 15u;
    expect("encode_command", &job, source, CASSANDRA_ERROR_ENCODE_COMMAND_MASK);
}

/* Stop a job in the middle of a packet, whose rest is discarded; then the tensor must be right. */
static void stops(const struct tensor* tensor) {
    cassandra_encode job = job_of(tensor);
    struct source source = {(uint32_t)(uintptr_t)part_of(tensor, tensor->plain), tensor->plain_size,
                            2u * tensor->segment_values};
    const cassandra_bus* bus = &encoder.bus;

    load_codebook(&encoder, tensor);
    bool right = cassandra_encode_start(&encoder, &job, true) == CASSANDRA_OK &&
                 cassandra_encode_step(&encoder, &job) == CASSANDRA_BUSY;
    offer(&source);
    for (uint32_t i = 0u; i < LIMIT && bus->read(bus->context, CASSANDRA_COUNT_VALUES_LOW) == 0u;
         i++) {
    }
    right = abort_job(&encoder) && right && !interrupts(ENCODER_INTERRUPT);
    for (uint32_t i = 0u; i < LIMIT && reader_done_read() == 0u; i++) {
    }
    put_event(&encoder, "abort", right && reader_done_read() != 0u);
    encode(tensor);
}

void encoder_faults(const struct tensor* unary, const struct tensor* mx) {
    load_codebook(&encoder, unary); /* core_rst has dropped it */
    packet_faults(unary);
    place_faults(unary);
    unary_faults(unary);
    mx_faults(mx);
    stops(unary);
}
