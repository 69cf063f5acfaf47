/* A driver for CassandraDma and CassandraEncoderDma.

   Freestanding C11: no allocation, no libc, no recursion. A job is a state machine that the caller
   owns: cassandra_decode_step() and cassandra_encode_step() do what can be done now and return.
   Call them in a loop (polling), or once after the start and then on each interrupt. Apache-2.0. */
#ifndef CASSANDRA_H
#define CASSANDRA_H

#include <stdbool.h>
#include <stdint.h>

#include "cassandra_registers.h"

typedef enum {
    CASSANDRA_OK = 0,
    CASSANDRA_BUSY,        /* the job continues: call the step again */
    CASSANDRA_NOT_FOUND,   /* ID is not that of the device */
    CASSANDRA_VERSION_BAD, /* the major version of the map is another one */
    CASSANDRA_ARGUMENT,    /* the device does not support the job; nothing was queued */
    CASSANDRA_FAULT,       /* the device set causes in ERROR: cassandra_device.fault has them */
    CASSANDRA_NEEDS_RESET  /* pulse rst, probe, and start again */
} cassandra_status;

/* Access to registers: 32 bits at a byte offset, in program order. */
typedef struct {
    uint32_t (*read)(void* context, uint32_t offset);
    void (*write)(void* context, uint32_t offset, uint32_t value);
    void* context;
} cassandra_bus;

/* Contents of ERROR when a job ended with CASSANDRA_FAULT; complete when cassandra_recover() has
   returned OK, because a read fails before the segment that it belongs to leaves. */
typedef struct {
    uint32_t causes;  /* ERROR, masks of CASSANDRA_ERROR_... */
    uint32_t segment; /* the first flagged segment of the job, if a segment was flagged */
    uint64_t address; /* the first burst that was answered with an error, if one was */
} cassandra_fault;

/* A device that was found, and what it was built for. */
typedef struct {
    cassandra_bus bus;
    cassandra_fault fault;
    uint32_t superblock; /* bytes */
    uint32_t word;       /* bytes of a bus word: addresses are multiples of it */
    uint32_t queue;      /* descriptors in the queue */
    uint32_t books;      /* slots for codebooks */
    uint32_t entries;    /* of a codebook */
    uint32_t schemes;    /* bit i: scheme i */
    bool encodes;        /* an encoder; otherwise decoders */
    bool coded;          /* decoders read coded pruned exponents */
} cassandra_device;

/* An entry of a tensor's directory, as in a packed file (docs/format.md, section 5). */
typedef struct {
    uint32_t speculation_offset; /* superblocks */
    uint32_t speculation_length;
    uint32_t verification_offset;
    uint32_t verification_length;
    uint32_t flags;
} cassandra_entry;

/* The parameters of a packed tensor that decoder and encoder share. */
typedef struct {
    uint64_t values;         /* of the tensor */
    uint32_t segment_values; /* values of a segment; the last one may have fewer */
    uint32_t scheme;         /* 0 unary, 1 mx, 2 exact */
    uint32_t truncated;      /* t */
    uint32_t log2_group;
    uint32_t slot; /* of the codebook (unary) */
} cassandra_layout;

/* Decode a tensor: one packet of values for each segment leaves the device, in order. */
typedef struct {
    cassandra_layout layout;
    uint64_t speculation;  /* bus address of the array */
    uint64_t verification; /* likewise; not read in a draft */
    const cassandra_entry* directory;
    uint32_t segments;    /* in the directory */
    uint32_t pruned_slot; /* of the codebook of pruned values (coded targets) */
    bool target;          /* target values; otherwise the draft's */
    bool midpoint;        /* fill of a draft */
    bool coded;           /* pruned exponents are coded */
    uint32_t next;        /* state: the next segment to queue */
} cassandra_decode;

/* Encode values, which enter the device on its stream, into two arrays and a directory. */
typedef struct {
    cassandra_layout layout;
    uint64_t speculation;       /* bus address of the room for the array */
    uint64_t verification;      /* likewise */
    uint32_t speculation_room;  /* bytes */
    uint32_t verification_room; /* bytes */
    cassandra_entry* directory; /* room for an entry of each segment */
    uint32_t segments;          /* that the directory has room for */
    uint32_t vector;            /* values of a vector */
    uint32_t keep;              /* values kept of each vector */
    bool saturate;              /* mx: replace values that are not finite */
    bool mask;                  /* write a mask stream even if all values are kept */
    uint32_t saturated;         /* result: values that were replaced */
    uint32_t next;              /* state: the next segment to queue */
    uint32_t done;              /* state: entries in the directory */
} cassandra_encode;

/* A bus of registers in memory; context is the address of the first, as a volatile uint32_t *. */
uint32_t cassandra_memory_read(void* context, uint32_t offset);
void cassandra_memory_write(void* context, uint32_t offset, uint32_t value);

/* Find the device on a bus: OK, NOT_FOUND or VERSION_BAD. */
cassandra_status cassandra_probe(cassandra_device* device, const cassandra_bus* bus);

/* Write a codebook of up to 32 exponents, by rank; none: all values are pruned. No job that uses
   the slot may be at work. */
cassandra_status cassandra_load_codebook(const cassandra_device* device, uint32_t slot,
                                         const uint8_t* exponents, uint32_t count);

/* Begin a job, with the device's interrupt on or off: OK; BUSY if another job is at work; ARGUMENT;
   NEEDS_RESET. The steps then return BUSY until the job ends with OK, FAULT or NEEDS_RESET. */
cassandra_status cassandra_decode_start(cassandra_device* device, cassandra_decode* job,
                                        bool interrupt);
cassandra_status cassandra_decode_step(cassandra_device* device, cassandra_decode* job);
cassandra_status cassandra_encode_start(cassandra_device* device, cassandra_encode* job,
                                        bool interrupt);
cassandra_status cassandra_encode_step(cassandra_device* device, cassandra_encode* job);

/* After a fault: empty the queue, clear causes and interrupts. BUSY while segments are on their way
   or their reads are outstanding; OK when the device can be used again and the memory of its
   segments can be freed; NEEDS_RESET where only a reset helps. A caller that gets BUSY for longer
   than its segments can take pulses rst, too. */
cassandra_status cassandra_recover(cassandra_device* device);

#endif /* CASSANDRA_H */
