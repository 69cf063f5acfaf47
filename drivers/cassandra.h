/* A driver for CassandraDma and CassandraEncoderDma.

   Freestanding C11, for C and C++ callers: no allocation, no libc, no recursion. A job is a state
   machine that the caller owns: cassandra_decode_step() and cassandra_encode_step() do what can be
   done now and return. Call them in a loop (polling), or once after the start and then on each
   interrupt. When a job has ended, however it did, its interrupt is off. docs/hardware/driver.md
   says what to do with each status, and how caches are kept in step. Apache-2.0. */
#ifndef CASSANDRA_H
#define CASSANDRA_H

#include <stdbool.h>
#include <stdint.h>

#include "cassandra_registers.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    CASSANDRA_OK = 0,
    CASSANDRA_BUSY,        /* the job continues: call the same function again */
    CASSANDRA_NOT_FOUND,   /* ID or capabilities are not those of a device */
    CASSANDRA_VERSION_BAD, /* the major version of the map is another one */
    CASSANDRA_ARGUMENT, /* the job contradicts itself or the kind of device; nothing was queued */
    CASSANDRA_FAULT,    /* the device set causes in ERROR: cassandra_device.fault has them */
    CASSANDRA_NEEDS_RESET, /* a soft error was found: cassandra_abort() */
    CASSANDRA_STALE,       /* results of an abandoned job wait: cassandra_abort() */
    CASSANDRA_LENGTH,      /* an entry's region is too long or ends beyond the addresses */
    CASSANDRA_LOST,        /* the device was reset while the job was at work */
    CASSANDRA_UNSUPPORTED  /* the device lacks the scheme, the vector or the coding; nothing queued
                            */
} cassandra_status;

/* Orders accesses to memory and to registers. The driver uses it before each START, after which
   the device accesses memory, and after the register reads that say that the device is done.
   Define it before this header is included (in the driver's own compilation, too) for another
   processor or operating system. */
#ifndef CASSANDRA_BARRIER
#if defined(__riscv)
#define CASSANDRA_BARRIER() __asm__ volatile("fence iorw, iorw" ::: "memory")
#elif defined(__aarch64__) || (defined(__ARM_ARCH) && __ARM_ARCH >= 7)
#define CASSANDRA_BARRIER() __asm__ volatile("dsb sy" ::: "memory")
#else
#define CASSANDRA_BARRIER() __sync_synchronize()
#endif
#endif

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
    uint32_t lanes;      /* values in a cycle of one engine */
    uint32_t vector;     /* encoder: values of the longest vector */
    bool encodes;        /* an encoder; otherwise decoders */
    bool coded;          /* decoders read coded pruned exponents */
    bool aborting;       /* state: cassandra_abort() has not ended */
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

/* Find the device on a bus: OK, NOT_FOUND or VERSION_BAD. Its interrupt is then off. */
cassandra_status cassandra_probe(cassandra_device* device, const cassandra_bus* bus);

/* Write a codebook of up to 32 exponents, by rank; none: all values are pruned. No job that uses
   the slot may be at work. */
cassandra_status cassandra_load_codebook(const cassandra_device* device, uint32_t slot,
                                         const uint8_t* exponents, uint32_t count);

/* Begin a job, with the device's interrupt on or off: OK; BUSY if another job is at work; ARGUMENT,
   UNSUPPORTED, STALE, NEEDS_RESET. The steps then return BUSY until the job ends with OK, FAULT,
   LENGTH, LOST or NEEDS_RESET. */
cassandra_status cassandra_decode_start(cassandra_device* device, cassandra_decode* job,
                                        bool interrupt);
cassandra_status cassandra_decode_step(cassandra_device* device, cassandra_decode* job);
cassandra_status cassandra_encode_start(cassandra_device* device, cassandra_encode* job,
                                        bool interrupt);
cassandra_status cassandra_encode_step(cassandra_device* device, cassandra_encode* job);

/* After a job that ended with FAULT or LENGTH: empty the queue, clear causes and interrupts;
   codebooks stay. BUSY while segments are on their way or their reads are outstanding; OK when the
   device can be used again and the memory of its segments can be freed; NEEDS_RESET where
   cassandra_abort() alone helps. A caller that gets BUSY for longer than its segments can take
   aborts. */
cassandra_status cassandra_recover(cassandra_device* device);

/* Drop everything at once, whatever the state: segments, results, codebooks, causes. Call it until
   it does not return BUSY, which it does while memory owes answers. With OK the device is as after
   rst, and no more memory is accessed. Codebooks must be loaded again. fresh: the source of an
   encoder's values was reset as well; otherwise the device discards the rest of the packet that
   was cut. Memory that never answers keeps it BUSY: then bus and device must be reset together. */
cassandra_status cassandra_abort(cassandra_device* device, bool fresh);

#ifdef __cplusplus
}
#endif

#endif /* CASSANDRA_H */
