/* Declarations that the parts of the firmware share. The image in memory is that of image.py: where
   it ends, a count, the places of tensors, and a struct tensor for each. */
#ifndef FIRMWARE_H
#define FIRMWARE_H

#include <generated/csr.h>
#include <generated/mem.h>
#include <generated/soc.h>
#include <system.h>

#include "cassandra.h"

#define AT(type, address) ((type*)(uintptr_t)(address))
#define LIMIT 100000u   /* steps of a job */
#define AREA 0x20000u   /* bytes of an area behind the image */
#define AREA_VALUES 0u  /* values that were decoded */
#define AREA_CHANGED 1u /* a copy with a fault */
#define AREA_STORE 2u   /* arrays that were encoded: speculation, then verification */
#define AREA_ENTRIES 4u /* their directory */

/* Places and sizes are in bytes; places count from here. */
struct tensor {
    uint32_t name[2];
    uint32_t values, segment_values, scheme, truncated, log2_group, segments;
    uint32_t vector, keep; /* of keys and values, which are encoded */
    uint32_t plain, speculation, verification, directory, codebook;
    uint32_t plain_size, speculation_size, verification_size, directory_size, codebook_size;
    uint32_t checksum[2]; /* draft, target */
};

static inline uint32_t area(uint32_t number) {
    return *AT(const uint32_t, MAIN_RAM_BASE) + number * AREA;
}

static inline const struct tensor* tensor_at(uint32_t index) {
    return AT(const struct tensor, MAIN_RAM_BASE + AT(const uint32_t, MAIN_RAM_BASE)[2u + index]);
}

static inline const uint8_t* part_of(const struct tensor* tensor, uint32_t place) {
    return AT(const uint8_t, (uintptr_t)tensor + place);
}

/* console.c: text on the serial port. Each row ends with a verdict; some_are_wrong() is whether one
   was WRONG. */
void put_text(const char* text);
void put_name(const char* name);
void put_number(uint32_t number, uint32_t width);
void put_verdict(bool right);
bool some_are_wrong(void);
void finish(void);

/* devices.c: what decoder and encoder have in common. */
cassandra_layout layout_of(const struct tensor* tensor);
bool find(cassandra_device* device, uintptr_t base);
void enable_interrupts(void);
bool interrupts(uint32_t line);
void load_codebook(const cassandra_device* device, const struct tensor* tensor);
void put_row(const cassandra_device* device, const struct tensor* tensor, const char* mode,
             bool right);
/* A job has ended with a fault that has a cause; the device can be used again. */
void judge(cassandra_device* device, const char* name, bool faulted, uint32_t cause);
void overflow(cassandra_device* device, const char* name);
/* Drop the job at work; return whether the device has ended. */
bool abort_job(cassandra_device* device);
void put_event(const cassandra_device* device, const char* name, bool right);

/* decoding.c */
bool find_decoder(void);
/* Decode golden's arrays, or those that encode() has stored; compare checksums. */
void decode(const struct tensor* tensor, bool target, bool stored);
void decoder_faults(const struct tensor* unary, const struct tensor* exact);

/* encoding.c */
bool find_encoder(void);
/* Encode keys or values into the store; compare arrays and directory with golden's. */
void encode(const struct tensor* tensor);
void encoder_faults(const struct tensor* unary, const struct tensor* mx);

#endif /* FIRMWARE_H */
