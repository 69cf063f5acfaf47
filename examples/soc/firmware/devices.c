/* What decoder and encoder have in common. */
#include "firmware.h"

cassandra_layout layout_of(const struct tensor* tensor) {
    return (cassandra_layout){
        .values = tensor->values,
        .segment_values = tensor->segment_values,
        .scheme = tensor->scheme,
        .truncated = tensor->truncated,
        .log2_group = tensor->log2_group,
    };
}

bool find(cassandra_device* device, uintptr_t base) {
    const cassandra_bus bus = {cassandra_memory_read, cassandra_memory_write, AT(void, base)};
    return cassandra_probe(device, &bus) == CASSANDRA_OK;
}

void enable_interrupts(void) {
    __asm__ volatile("csrw 0xbc0, %0" : : "r"(1u << DECODER_INTERRUPT | 1u << ENCODER_INTERRUPT));
}

/* Interrupts that wait, before any mask: a register of VexRiscv's interrupt plugin. */
bool interrupts(uint32_t line) {
    uint32_t value;
    __asm__ volatile("csrr %0, 0xfc0" : "=r"(value));
    return (value >> line & 1u) != 0u;
}

void load_codebook(const cassandra_device* device, const struct tensor* tensor) {
    const uint8_t* book = part_of(tensor, tensor->codebook);
    (void)cassandra_load_codebook(device, 0u, book, tensor->codebook_size);
}

void put_row(const cassandra_device* device, const struct tensor* tensor, const char* mode,
             bool right) {
    put_name((const char*)tensor->name);
    put_name(mode);
    put_number(tensor->values, 8u);
    put_number(device->bus.read(device->bus.context, CASSANDRA_COUNT_CYCLES_LOW), 9u);
    put_verdict(right);
}

static void recover(cassandra_device* device) {
    cassandra_status status = CASSANDRA_BUSY;
    for (uint32_t i = 0u; i < LIMIT && status == CASSANDRA_BUSY; i++) {
        status = cassandra_recover(device);
    }
    if (status != CASSANDRA_OK) {
        (void)abort_job(device);
        put_text("(abort) ");
    }
}

bool abort_job(cassandra_device* device) {
    cassandra_status status = CASSANDRA_BUSY;
    for (uint32_t i = 0u; i < LIMIT && status == CASSANDRA_BUSY; i++) {
        status = cassandra_abort(device, false);
    }
    return status == CASSANDRA_OK;
}

void put_event(const cassandra_device* device, const char* name, bool right) {
    put_name(device->encodes ? "encoder" : "decoder");
    put_name(name);
    put_number(device->fault.causes, 8u);
    put_verdict(right);
}

void judge(cassandra_device* device, const char* name, bool faulted, uint32_t cause) {
    recover(device);
    put_event(device, name, faulted && (device->fault.causes & cause) != 0u);
}

/* The registers have the descriptor of an earlier segment. */
void overflow(cassandra_device* device, const char* name) {
    void* context = device->bus.context;
    device->fault.causes = 0u;
    device->bus.write(context, CASSANDRA_CONTROL, 0u);
    for (uint32_t i = 0u; i <= device->queue; i++) {
        device->bus.write(context, CASSANDRA_START, CASSANDRA_START_PUSH(1u));
    }
    judge(device, name, true, CASSANDRA_ERROR_OVERFLOW_MASK);
}
