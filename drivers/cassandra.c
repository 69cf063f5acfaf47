/* See cassandra.h. Apache-2.0. */
#include "cassandra.h"

#define ID 0x43415353u
#define ALL 0xffffffffu
#define MASK_FLAG 1u /* of cassandra_entry.flags */
#define ENABLED CASSANDRA_CONTROL_ENABLE(1u)
#define ENTRIES_MAX 32u
#define SEGMENT_MAX 0x10000u
#define LENGTH_MAX 0x1000000u
#define RESULTS_MAX 64u

static uint32_t get(const cassandra_device* device, uint32_t offset) {
    return device->bus.read(device->bus.context, offset);
}

static void put(const cassandra_device* device, uint32_t offset, uint32_t value) {
    device->bus.write(device->bus.context, offset, value);
}

static void put_pair(const cassandra_device* device, uint32_t offset, uint64_t value) {
    put(device, offset, (uint32_t)(value & ALL));
    put(device, offset + 4u, (uint32_t)(value >> 32u));
}

#define FIELD(word, name) (((word) & CASSANDRA_##name##_MASK) >> CASSANDRA_##name##_SHIFT)

uint32_t cassandra_memory_read(void* context, uint32_t offset) {
    const volatile uint32_t* registers = (const volatile uint32_t*)context;
    return registers[offset / 4u];
}

void cassandra_memory_write(void* context, uint32_t offset, uint32_t value) {
    volatile uint32_t* registers = (volatile uint32_t*)context;
    registers[offset / 4u] = value;
}

static bool power_of_two(uint32_t number) { return number != 0u && (number & (number - 1u)) == 0u; }

cassandra_status cassandra_probe(cassandra_device* device, const cassandra_bus* bus) {
    device->bus.read = bus->read; /* one by one: a copy may call memcpy */
    device->bus.write = bus->write;
    device->bus.context = bus->context;
    device->fault = (cassandra_fault){0};
    device->aborting = false;
    if (get(device, CASSANDRA_ID) != ID) {
        return CASSANDRA_NOT_FOUND;
    }
    const uint32_t version = get(device, CASSANDRA_VERSION);
    if (FIELD(version, VERSION_MAJOR) != CASSANDRA_MAP_MAJOR) {
        return CASSANDRA_VERSION_BAD;
    }
    device->encodes = FIELD(version, VERSION_ENCODES) != 0u;
    /* DECODER and ENCODER, FETCH and STORE have the same fields; each device has one of each. */
    const uint32_t engine = get(device, device->encodes ? CASSANDRA_ENCODER : CASSANDRA_DECODER);
    const uint32_t master = get(device, device->encodes ? CASSANDRA_STORE : CASSANDRA_FETCH);
    device->lanes = FIELD(engine, DECODER_LANES);
    device->vector = device->encodes ? FIELD(engine, ENCODER_VECTOR) + 1u : 0u;
    device->schemes = FIELD(engine, DECODER_SCHEMES);
    device->entries = FIELD(engine, DECODER_CODEBOOK);
    device->word = FIELD(master, FETCH_BUS);
    device->queue = FIELD(master, FETCH_QUEUE);
    device->books = FIELD(master, FETCH_BOOKS);
    device->superblock = 128u * FIELD(master, FETCH_SUPERBLOCK);
    device->coded = !device->encodes && FIELD(get(device, CASSANDRA_FORMATS), FORMATS_CODED) != 0u;
    put(device, CASSANDRA_IRQ_ENABLE, 0u);
    return power_of_two(device->lanes) && power_of_two(device->word) && device->superblock != 0u
               ? CASSANDRA_OK
               : CASSANDRA_NOT_FOUND;
}

cassandra_status cassandra_load_codebook(const cassandra_device* device, uint32_t slot,
                                         const uint8_t* exponents, uint32_t count) {
    if (slot >= device->books || count > device->entries || count > ENTRIES_MAX) {
        return CASSANDRA_ARGUMENT;
    }
    const uint32_t end = CASSANDRA_CODEBOOK_SLOT(slot) | CASSANDRA_CODEBOOK_LAST(1u);
    if (count == 0u) {
        put(device, CASSANDRA_CODEBOOK, end | CASSANDRA_CODEBOOK_EMPTY(1u));
    }
    for (uint32_t rank = 0u; rank < count; rank++) {
        put(device, CASSANDRA_CODEBOOK,
            CASSANDRA_CODEBOOK_EXPONENT(exponents[rank]) | CASSANDRA_CODEBOOK_ENTRY(rank) |
                (rank + 1u == count ? end : CASSANDRA_CODEBOOK_SLOT(slot)));
    }
    return CASSANDRA_OK;
}

/* Whether a layout is one, of a tensor that has so many segments, at two addresses. */
static bool fits(const cassandra_device* device, const cassandra_layout* layout, uint32_t segments,
                 uint64_t addresses) {
    const uint64_t whole = (uint64_t)segments * layout->segment_values;
    return layout->segment_values > 0u && layout->segment_values <= SEGMENT_MAX && segments > 0u &&
           layout->values <= whole && layout->values > whole - layout->segment_values &&
           layout->truncated < 8u && layout->log2_group < 16u && layout->slot < device->books &&
           (addresses & (device->word - 1u)) == 0u;
}

/* Whether the device has a scheme. */
static bool has(const cassandra_device* device, uint32_t scheme) {
    return scheme < 32u && ((device->schemes >> scheme) & 1u) != 0u;
}

/* The values of one segment. */
static uint32_t values_of(const cassandra_layout* layout, uint32_t segment) {
    const uint64_t left = layout->values - (uint64_t)segment * layout->segment_values;
    return left < layout->segment_values ? (uint32_t)left : layout->segment_values;
}

/* Empty the queue; what has left it is finished. */
static void stop(const cassandra_device* device) {
    put(device, CASSANDRA_CONTROL, 0u);
    put(device, CASSANDRA_CONTROL, CASSANDRA_CONTROL_DROP(1u));
}

/* Clear causes and interrupts; a bit of GUARD stays until reset. */
static cassandra_status clear(const cassandra_device* device) {
    put(device, CASSANDRA_ERROR, ALL);
    put(device, CASSANDRA_IRQ, ALL);
    return FIELD(get(device, CASSANDRA_ERROR), ERROR_GUARD) != 0u ? CASSANDRA_NEEDS_RESET
                                                                  : CASSANDRA_OK;
}

/* Keep the device from interrupting: its job has ended. */
static void quiet(const cassandra_device* device) {
    put(device, CASSANDRA_IRQ_ENABLE, 0u);
    put(device, CASSANDRA_IRQ, ALL);
}

static bool has_result(const cassandra_device* device) {
    return device->encodes && FIELD(get(device, CASSANDRA_RESULT), RESULT_VALID) != 0u;
}

static cassandra_status begin(cassandra_device* device, bool interrupt) {
    if (device->aborting || FIELD(get(device, CASSANDRA_STATUS), STATUS_BUSY) != 0u) {
        return CASSANDRA_BUSY;
    }
    if (has_result(device)) {
        return CASSANDRA_STALE;
    }
    device->fault = (cassandra_fault){0};
    const cassandra_status status = clear(device);
    if (status == CASSANDRA_OK) {
        put(device, CASSANDRA_IRQ_ENABLE, interrupt ? ALL : 0u);
        put(device, CASSANDRA_CONTROL, ENABLED | CASSANDRA_CONTROL_CLEAR(1u));
    } else {
        quiet(device);
    }
    return status;
}

/* Keep what ERROR and its two registers say. */
static void note(cassandra_device* device, uint32_t causes) {
    device->fault.causes |= causes;
    device->fault.segment = get(device, CASSANDRA_ERROR_SEGMENT);
    device->fault.address = get(device, CASSANDRA_ERROR_ADDRESS_LOW);
    device->fault.address |= (uint64_t)get(device, CASSANDRA_ERROR_ADDRESS_HIGH) << 32u;
}

/* What ERROR makes of a job: OK, FAULT or NEEDS_RESET. */
static cassandra_status judge(cassandra_device* device) {
    const uint32_t causes = get(device, CASSANDRA_ERROR);
    if (causes == 0u) {
        return CASSANDRA_OK;
    }
    note(device, causes);
    return FIELD(causes, ERROR_GUARD) != 0u ? CASSANDRA_NEEDS_RESET : CASSANDRA_FAULT;
}

/* The status of a step that found the job's queue in this status, its work done or not. */
static cassandra_status conclude(cassandra_device* device, cassandra_status status, bool done,
                                 uint32_t segments) {
    if (get(device, CASSANDRA_CONTROL) != ENABLED) {
        status = CASSANDRA_LOST;
    } else if (status == CASSANDRA_OK) {
        status = judge(device);
    }
    if (status == CASSANDRA_OK && !done) {
        return CASSANDRA_BUSY;
    }
    if (status == CASSANDRA_OK && get(device, CASSANDRA_COUNT_SEGMENTS) != segments) {
        status = CASSANDRA_LOST;
    }
    if (status != CASSANDRA_OK) {
        stop(device);
    }
    quiet(device);
    CASSANDRA_BARRIER();
    return status;
}

/* Whether a region of an entry has a length that fits its register, and ends with the addresses. */
static bool reaches(const cassandra_device* device, uint64_t base, uint32_t offset,
                    uint32_t length) {
    const uint64_t size = device->superblock, begins = size * offset, bytes = size * length;
    /* Before the last byte, because the end may be 2^64. */
    return bytes < LENGTH_MAX && begins <= UINT64_MAX - base &&
           (bytes == 0u || bytes - 1u <= UINT64_MAX - (base + begins));
}

/* COMMAND and ENCODE_COMMAND begin with the same fields. */
static uint32_t command_of(const cassandra_layout* layout, uint32_t segment) {
    return CASSANDRA_COMMAND_COUNT(values_of(layout, segment) - 1u) |
           CASSANDRA_COMMAND_SCHEME(layout->scheme) |
           CASSANDRA_COMMAND_TRUNCATED(layout->truncated);
}

cassandra_status cassandra_decode_start(cassandra_device* device, cassandra_decode* job,
                                        bool interrupt) {
    const uint64_t addresses = job->speculation | (job->target ? job->verification : 0u);
    const bool pruned = !job->coded || job->pruned_slot < device->books;
    if (device->encodes || !pruned || !fits(device, &job->layout, job->segments, addresses)) {
        return CASSANDRA_ARGUMENT;
    }
    if (!has(device, job->layout.scheme) || (job->coded && !device->coded)) {
        return CASSANDRA_UNSUPPORTED;
    }
    job->next = 0u;
    return begin(device, interrupt);
}

/* Write base and length of a region; false, and nothing is written, if they are not legal. */
static bool put_region(const cassandra_device* device, uint32_t base_low, uint32_t length_register,
                       uint64_t array, uint32_t offset, uint32_t length) {
    if (!reaches(device, array, offset, length)) {
        return false;
    }
    put_pair(device, base_low, array + (uint64_t)device->superblock * offset);
    put(device, length_register, device->superblock * length);
    return true;
}

/* The entry is read once: what is checked is what is written. */
static cassandra_status queue_decode(const cassandra_device* device, const cassandra_decode* job) {
    const volatile cassandra_entry* entry = &job->directory[job->next];
    const uint32_t length = entry->verification_length;
    const bool verifies = length != 0u;

    if (!put_region(device, CASSANDRA_SPECULATION_BASE_LOW, CASSANDRA_SPECULATION_LENGTH,
                    job->speculation, entry->speculation_offset, entry->speculation_length)) {
        return CASSANDRA_LENGTH;
    }
    if (job->target && verifies &&
        !put_region(device, CASSANDRA_VERIFICATION_BASE_LOW, CASSANDRA_VERIFICATION_LENGTH,
                    job->verification, entry->verification_offset, length)) {
        return CASSANDRA_LENGTH;
    }
    put(device, CASSANDRA_COMMAND,
        command_of(&job->layout, job->next) | CASSANDRA_COMMAND_TARGET(job->target ? 1u : 0u) |
            CASSANDRA_COMMAND_MIDPOINT(job->midpoint ? 1u : 0u) |
            CASSANDRA_COMMAND_MASK((entry->flags & MASK_FLAG) != 0u ? 1u : 0u) |
            CASSANDRA_COMMAND_VERIFICATION(verifies ? 1u : 0u) |
            CASSANDRA_COMMAND_LOG2_GROUP(job->layout.log2_group) |
            CASSANDRA_COMMAND_CODED(job->coded ? 1u : 0u));
    put(device, CASSANDRA_BOOK,
        CASSANDRA_BOOK_SLOT(job->layout.slot) | CASSANDRA_BOOK_PRUNED(job->pruned_slot));
    CASSANDRA_BARRIER();
    put(device, CASSANDRA_START, CASSANDRA_START_PUSH(1u));
    return CASSANDRA_OK;
}

static bool full(const cassandra_device* device) {
    return FIELD(get(device, CASSANDRA_STATUS), STATUS_FULL) != 0u;
}

cassandra_status cassandra_decode_step(cassandra_device* device, cassandra_decode* job) {
    /* Before anything is looked at: what happens later interrupts again. */
    put(device, CASSANDRA_IRQ, ALL);
    cassandra_status status = CASSANDRA_OK;
    while (status == CASSANDRA_OK && job->next < job->segments && !full(device)) {
        status = queue_decode(device, job);
        job->next += status == CASSANDRA_OK ? 1u : 0u;
    }
    /* STATUS before ERROR: causes of the last segment are set before the device is idle. */
    const bool busy = FIELD(get(device, CASSANDRA_STATUS), STATUS_BUSY) != 0u;
    return conclude(device, status, !busy && job->next >= job->segments, job->segments);
}

cassandra_status cassandra_encode_start(cassandra_device* device, cassandra_encode* job,
                                        bool interrupt) {
    const uint64_t addresses =
        job->speculation | job->verification | job->speculation_room | job->verification_room;
    if (!device->encodes || !fits(device, &job->layout, job->segments, addresses) ||
        job->speculation_room >= LENGTH_MAX || job->verification_room >= LENGTH_MAX ||
        job->vector == 0u || job->keep > job->vector) {
        return CASSANDRA_ARGUMENT;
    }
    if (!has(device, job->layout.scheme) || job->vector > device->vector ||
        (job->vector & (device->lanes - 1u)) != 0u) {
        return CASSANDRA_UNSUPPORTED;
    }
    job->next = 0u;
    job->done = 0u;
    job->saturated = 0u;
    return begin(device, interrupt);
}

static void queue_encode(const cassandra_device* device, const cassandra_encode* job) {
    put(device, CASSANDRA_ENCODE_COMMAND,
        command_of(&job->layout, job->next) |
            CASSANDRA_ENCODE_COMMAND_SATURATE(job->saturate ? 1u : 0u) |
            CASSANDRA_ENCODE_COMMAND_MASK(job->mask ? 1u : 0u) |
            CASSANDRA_ENCODE_COMMAND_LOG2_GROUP(job->layout.log2_group));
    put(device, CASSANDRA_ENCODE_VECTOR,
        CASSANDRA_ENCODE_VECTOR_VECTOR(job->vector - 1u) | CASSANDRA_ENCODE_VECTOR_KEEP(job->keep));
    put(device, CASSANDRA_BOOK, CASSANDRA_BOOK_SLOT(job->layout.slot));
    if (job->next == 0u) {
        put_pair(device, CASSANDRA_SPECULATION_BASE_LOW, job->speculation);
        put(device, CASSANDRA_SPECULATION_LENGTH, job->speculation_room);
        put_pair(device, CASSANDRA_VERIFICATION_BASE_LOW, job->verification);
        put(device, CASSANDRA_VERIFICATION_LENGTH, job->verification_room);
    }
    CASSANDRA_BARRIER();
    put(device, CASSANDRA_START,
        CASSANDRA_START_PUSH(1u) | CASSANDRA_START_FOLLOW(job->next != 0u ? 1u : 0u));
}

/* Take the oldest result, which is valid, into the directory. */
static void take_result(const cassandra_device* device, cassandra_encode* job, uint32_t result) {
    cassandra_entry* entry = &job->directory[job->done];
    entry->speculation_offset = get(device, CASSANDRA_RESULT_SPECULATION_OFFSET);
    entry->speculation_length = get(device, CASSANDRA_RESULT_SPECULATION_LENGTH);
    entry->verification_offset = get(device, CASSANDRA_RESULT_VERIFICATION_OFFSET);
    entry->verification_length = get(device, CASSANDRA_RESULT_VERIFICATION_LENGTH);
    entry->flags = FIELD(result, RESULT_MASK) != 0u ? MASK_FLAG : 0u;
    job->saturated += get(device, CASSANDRA_RESULT_SATURATED);
    put(device, CASSANDRA_RESULT, CASSANDRA_RESULT_POP(1u));
    job->done++;
}

cassandra_status cassandra_encode_step(cassandra_device* device, cassandra_encode* job) {
    put(device, CASSANDRA_IRQ, ALL);
    while (job->next < job->segments && !full(device)) {
        queue_encode(device, job);
        job->next++;
    }
    while (job->done < job->next) {
        const uint32_t result = get(device, CASSANDRA_RESULT);
        if (FIELD(result, RESULT_VALID) == 0u) {
            break;
        }
        take_result(device, job, result);
    }
    return conclude(device, CASSANDRA_OK, job->done >= job->segments, job->segments);
}

cassandra_status cassandra_recover(cassandra_device* device) {
    stop(device);
    quiet(device);
    for (uint32_t i = 0u; i < RESULTS_MAX && has_result(device); i++) {
        put(device, CASSANDRA_RESULT, CASSANDRA_RESULT_POP(1u));
    }
    const bool busy = FIELD(get(device, CASSANDRA_STATUS), STATUS_BUSY) != 0u;
    const uint32_t causes = get(device, CASSANDRA_ERROR);
    if (causes != 0u) {
        note(device, causes); /* the flagged segment may have left only now */
    }
    if (FIELD(causes, ERROR_GUARD) != 0u) {
        return CASSANDRA_NEEDS_RESET;
    }
    return busy ? CASSANDRA_BUSY : clear(device);
}

cassandra_status cassandra_abort(cassandra_device* device, bool fresh) {
    if (!device->aborting) {
        put(device, CASSANDRA_CONTROL,
            CASSANDRA_CONTROL_RESET(1u) | CASSANDRA_CONTROL_FRESH(fresh ? 1u : 0u));
        device->aborting = true;
    }
    if (FIELD(get(device, CASSANDRA_STATUS), STATUS_DRAINING) != 0u) {
        return CASSANDRA_BUSY;
    }
    device->aborting = false;
    device->fault = (cassandra_fault){0};
    quiet(device); /* the end of the reset is an event, too */
    CASSANDRA_BARRIER();
    return CASSANDRA_OK;
}
