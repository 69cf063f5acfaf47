/* cassandra_registers: registers, version 1.0.0 of the map.
   Generated from the table that makes the gateware. Apache-2.0. */
#ifndef CASSANDRA_REGISTERS_H
#define CASSANDRA_REGISTERS_H

#include <stdint.h>

/* Offsets in bytes; FIELD_SHIFT and FIELD_MASK (in place) for each field; FIELD(x) puts a number in
   its place. Registers without named fields are one number. */


#define CASSANDRA_MAP_MAJOR 1u

/* "CASS", first letter in the highest byte */
#define CASSANDRA_ID 0x00u

/* version of this map */
#define CASSANDRA_VERSION 0x04u
#define CASSANDRA_VERSION_PATCH_SHIFT 0u
#define CASSANDRA_VERSION_PATCH_MASK 0x000000ffu /* ro: corrections */
#define CASSANDRA_VERSION_PATCH(x) (((uint32_t)(x) << CASSANDRA_VERSION_PATCH_SHIFT) & CASSANDRA_VERSION_PATCH_MASK)
#define CASSANDRA_VERSION_MINOR_SHIFT 8u
#define CASSANDRA_VERSION_MINOR_MASK 0x0000ff00u /* ro: additions */
#define CASSANDRA_VERSION_MINOR(x) (((uint32_t)(x) << CASSANDRA_VERSION_MINOR_SHIFT) & CASSANDRA_VERSION_MINOR_MASK)
#define CASSANDRA_VERSION_MAJOR_SHIFT 16u
#define CASSANDRA_VERSION_MAJOR_MASK 0x00ff0000u /* ro: incompatible changes */
#define CASSANDRA_VERSION_MAJOR(x) (((uint32_t)(x) << CASSANDRA_VERSION_MAJOR_SHIFT) & CASSANDRA_VERSION_MAJOR_MASK)
#define CASSANDRA_VERSION_ENCODES_SHIFT 24u
#define CASSANDRA_VERSION_ENCODES_MASK 0x01000000u /* ro: 1: an encoder; 0: decoders */
#define CASSANDRA_VERSION_ENCODES(x) (((uint32_t)(x) << CASSANDRA_VERSION_ENCODES_SHIFT) & CASSANDRA_VERSION_ENCODES_MASK)

/* capabilities of the decoders */
#define CASSANDRA_DECODER 0x08u
#define CASSANDRA_DECODER_LANES_SHIFT 0u
#define CASSANDRA_DECODER_LANES_MASK 0x000000ffu /* ro: values in a cycle of one decoder */
#define CASSANDRA_DECODER_LANES(x) (((uint32_t)(x) << CASSANDRA_DECODER_LANES_SHIFT) & CASSANDRA_DECODER_LANES_MASK)
#define CASSANDRA_DECODER_SCHEMES_SHIFT 8u
#define CASSANDRA_DECODER_SCHEMES_MASK 0x00000f00u /* ro: bit i: scheme i of COMMAND */
#define CASSANDRA_DECODER_SCHEMES(x) (((uint32_t)(x) << CASSANDRA_DECODER_SCHEMES_SHIFT) & CASSANDRA_DECODER_SCHEMES_MASK)
#define CASSANDRA_DECODER_WINDOW_SHIFT 12u
#define CASSANDRA_DECODER_WINDOW_MASK 0x0000f000u /* ro: rows in a window of unary codes */
#define CASSANDRA_DECODER_WINDOW(x) (((uint32_t)(x) << CASSANDRA_DECODER_WINDOW_SHIFT) & CASSANDRA_DECODER_WINDOW_MASK)
#define CASSANDRA_DECODER_CODEBOOK_SHIFT 16u
#define CASSANDRA_DECODER_CODEBOOK_MASK 0x00ff0000u /* ro: entries of a codebook */
#define CASSANDRA_DECODER_CODEBOOK(x) (((uint32_t)(x) << CASSANDRA_DECODER_CODEBOOK_SHIFT) & CASSANDRA_DECODER_CODEBOOK_MASK)
#define CASSANDRA_DECODER_DECODERS_SHIFT 24u
#define CASSANDRA_DECODER_DECODERS_MASK 0xff000000u /* ro: decoders behind this port */
#define CASSANDRA_DECODER_DECODERS(x) (((uint32_t)(x) << CASSANDRA_DECODER_DECODERS_SHIFT) & CASSANDRA_DECODER_DECODERS_MASK)

/* parameters of the read master */
#define CASSANDRA_FETCH 0x0cu
#define CASSANDRA_FETCH_BUS_SHIFT 0u
#define CASSANDRA_FETCH_BUS_MASK 0x000000ffu /* ro: bytes of a bus word: bases and lengths are multiples of it */
#define CASSANDRA_FETCH_BUS(x) (((uint32_t)(x) << CASSANDRA_FETCH_BUS_SHIFT) & CASSANDRA_FETCH_BUS_MASK)
#define CASSANDRA_FETCH_QUEUE_SHIFT 8u
#define CASSANDRA_FETCH_QUEUE_MASK 0x0000ff00u /* ro: descriptors in the queue */
#define CASSANDRA_FETCH_QUEUE(x) (((uint32_t)(x) << CASSANDRA_FETCH_QUEUE_SHIFT) & CASSANDRA_FETCH_QUEUE_MASK)
#define CASSANDRA_FETCH_BOOKS_SHIFT 16u
#define CASSANDRA_FETCH_BOOKS_MASK 0x00ff0000u /* ro: codebooks that are kept */
#define CASSANDRA_FETCH_BOOKS(x) (((uint32_t)(x) << CASSANDRA_FETCH_BOOKS_SHIFT) & CASSANDRA_FETCH_BOOKS_MASK)
#define CASSANDRA_FETCH_SUPERBLOCK_SHIFT 24u
#define CASSANDRA_FETCH_SUPERBLOCK_MASK 0xff000000u /* ro: superblock in cache blocks of 128 bytes */
#define CASSANDRA_FETCH_SUPERBLOCK(x) (((uint32_t)(x) << CASSANDRA_FETCH_SUPERBLOCK_SHIFT) & CASSANDRA_FETCH_SUPERBLOCK_MASK)

/* operation of the device */
#define CASSANDRA_CONTROL 0x10u
#define CASSANDRA_CONTROL_ENABLE_SHIFT 0u
#define CASSANDRA_CONTROL_ENABLE_MASK 0x00000001u /* rw: descriptors leave the queue; segments that have left it are finished in any case */
#define CASSANDRA_CONTROL_ENABLE(x) (((uint32_t)(x) << CASSANDRA_CONTROL_ENABLE_SHIFT) & CASSANDRA_CONTROL_ENABLE_MASK)
#define CASSANDRA_CONTROL_DROP_SHIFT 1u
#define CASSANDRA_CONTROL_DROP_MASK 0x00000002u /* wo: empty the queue; without effect while enable is 1 */
#define CASSANDRA_CONTROL_DROP(x) (((uint32_t)(x) << CASSANDRA_CONTROL_DROP_SHIFT) & CASSANDRA_CONTROL_DROP_MASK)
#define CASSANDRA_CONTROL_CLEAR_SHIFT 2u
#define CASSANDRA_CONTROL_CLEAR_MASK 0x00000004u /* wo: set the counters, and the number of the next segment, to zero */
#define CASSANDRA_CONTROL_CLEAR(x) (((uint32_t)(x) << CASSANDRA_CONTROL_CLEAR_SHIFT) & CASSANDRA_CONTROL_CLEAR_MASK)
#define CASSANDRA_CONTROL_RESET_SHIFT 3u
#define CASSANDRA_CONTROL_RESET_MASK 0x00000008u /* wo: drop all segments and set all registers to zero, while the bus is drained; ends with IRQ.idle */
#define CASSANDRA_CONTROL_RESET(x) (((uint32_t)(x) << CASSANDRA_CONTROL_RESET_SHIFT) & CASSANDRA_CONTROL_RESET_MASK)
#define CASSANDRA_CONTROL_FRESH_SHIFT 4u
#define CASSANDRA_CONTROL_FRESH_MASK 0x00000010u /* wo: encoder: with reset, the next beat of values begins a packet; otherwise the rest of a packet that has begun is discarded */
#define CASSANDRA_CONTROL_FRESH(x) (((uint32_t)(x) << CASSANDRA_CONTROL_FRESH_SHIFT) & CASSANDRA_CONTROL_FRESH_MASK)

/* current state */
#define CASSANDRA_STATUS 0x14u
#define CASSANDRA_STATUS_BUSY_SHIFT 0u
#define CASSANDRA_STATUS_BUSY_MASK 0x00000001u /* ro: a segment is in the queue or on its way, or reads are outstanding, which outlast a segment that failed, or draining is set */
#define CASSANDRA_STATUS_BUSY(x) (((uint32_t)(x) << CASSANDRA_STATUS_BUSY_SHIFT) & CASSANDRA_STATUS_BUSY_MASK)
#define CASSANDRA_STATUS_FULL_SHIFT 1u
#define CASSANDRA_STATUS_FULL_MASK 0x00000002u /* ro: the queue takes no descriptor */
#define CASSANDRA_STATUS_FULL(x) (((uint32_t)(x) << CASSANDRA_STATUS_FULL_SHIFT) & CASSANDRA_STATUS_FULL_MASK)
#define CASSANDRA_STATUS_DRAINING_SHIFT 2u
#define CASSANDRA_STATUS_DRAINING_MASK 0x00000004u /* ro: a reset waits for the bus to answer */
#define CASSANDRA_STATUS_DRAINING(x) (((uint32_t)(x) << CASSANDRA_STATUS_DRAINING_SHIFT) & CASSANDRA_STATUS_DRAINING_MASK)
#define CASSANDRA_STATUS_OPEN_SHIFT 3u
#define CASSANDRA_STATUS_OPEN_MASK 0x00000008u /* ro: a burst waits for its address, its data or its response */
#define CASSANDRA_STATUS_OPEN(x) (((uint32_t)(x) << CASSANDRA_STATUS_OPEN_SHIFT) & CASSANDRA_STATUS_OPEN_MASK)
#define CASSANDRA_STATUS_QUIET_SHIFT 4u
#define CASSANDRA_STATUS_QUIET_MASK 0x00000010u /* ro: quiesce_done: no burst is open, and none begins */
#define CASSANDRA_STATUS_QUIET(x) (((uint32_t)(x) << CASSANDRA_STATUS_QUIET_SHIFT) & CASSANDRA_STATUS_QUIET_MASK)
#define CASSANDRA_STATUS_DISCARDS_SHIFT 5u
#define CASSANDRA_STATUS_DISCARDS_MASK 0x00000020u /* ro: encoder: the rest of a packet that a reset has cut is discarded */
#define CASSANDRA_STATUS_DISCARDS(x) (((uint32_t)(x) << CASSANDRA_STATUS_DISCARDS_SHIFT) & CASSANDRA_STATUS_DISCARDS_MASK)
#define CASSANDRA_STATUS_WAITING_SHIFT 8u
#define CASSANDRA_STATUS_WAITING_MASK 0x00007f00u /* ro: descriptors in the queue */
#define CASSANDRA_STATUS_WAITING(x) (((uint32_t)(x) << CASSANDRA_STATUS_WAITING_SHIFT) & CASSANDRA_STATUS_WAITING_MASK)
#define CASSANDRA_STATUS_FLYING_SHIFT 16u
#define CASSANDRA_STATUS_FLYING_MASK 0xffff0000u /* ro: segments between queue and output */
#define CASSANDRA_STATUS_FLYING(x) (((uint32_t)(x) << CASSANDRA_STATUS_FLYING_SHIFT) & CASSANDRA_STATUS_FLYING_MASK)

/* interrupts that wait; irq is high while one waits that is enabled */
#define CASSANDRA_IRQ 0x18u
#define CASSANDRA_IRQ_SEGMENT_SHIFT 0u
#define CASSANDRA_IRQ_SEGMENT_MASK 0x00000001u /* w1c: a segment has left (encoder: its result waits) */
#define CASSANDRA_IRQ_SEGMENT(x) (((uint32_t)(x) << CASSANDRA_IRQ_SEGMENT_SHIFT) & CASSANDRA_IRQ_SEGMENT_MASK)
#define CASSANDRA_IRQ_IDLE_SHIFT 1u
#define CASSANDRA_IRQ_IDLE_MASK 0x00000002u /* w1c: STATUS.busy has cleared */
#define CASSANDRA_IRQ_IDLE(x) (((uint32_t)(x) << CASSANDRA_IRQ_IDLE_SHIFT) & CASSANDRA_IRQ_IDLE_MASK)
#define CASSANDRA_IRQ_ERROR_SHIFT 2u
#define CASSANDRA_IRQ_ERROR_MASK 0x00000004u /* w1c: a bit of ERROR was set */
#define CASSANDRA_IRQ_ERROR(x) (((uint32_t)(x) << CASSANDRA_IRQ_ERROR_SHIFT) & CASSANDRA_IRQ_ERROR_MASK)

/* interrupts that reach irq */
#define CASSANDRA_IRQ_ENABLE 0x1cu
#define CASSANDRA_IRQ_ENABLE_SEGMENT_SHIFT 0u
#define CASSANDRA_IRQ_ENABLE_SEGMENT_MASK 0x00000001u /* rw: enable segment */
#define CASSANDRA_IRQ_ENABLE_SEGMENT(x) (((uint32_t)(x) << CASSANDRA_IRQ_ENABLE_SEGMENT_SHIFT) & CASSANDRA_IRQ_ENABLE_SEGMENT_MASK)
#define CASSANDRA_IRQ_ENABLE_IDLE_SHIFT 1u
#define CASSANDRA_IRQ_ENABLE_IDLE_MASK 0x00000002u /* rw: enable idle */
#define CASSANDRA_IRQ_ENABLE_IDLE(x) (((uint32_t)(x) << CASSANDRA_IRQ_ENABLE_IDLE_SHIFT) & CASSANDRA_IRQ_ENABLE_IDLE_MASK)
#define CASSANDRA_IRQ_ENABLE_ERROR_SHIFT 2u
#define CASSANDRA_IRQ_ENABLE_ERROR_MASK 0x00000004u /* rw: enable error */
#define CASSANDRA_IRQ_ENABLE_ERROR(x) (((uint32_t)(x) << CASSANDRA_IRQ_ENABLE_ERROR_SHIFT) & CASSANDRA_IRQ_ENABLE_ERROR_MASK)

/* sticky causes of errors */
#define CASSANDRA_ERROR 0x20u
#define CASSANDRA_ERROR_SHORT_SHIFT 0u
#define CASSANDRA_ERROR_SHORT_MASK 0x00000001u /* w1c: decoder: short (docs/format.md, section 7) */
#define CASSANDRA_ERROR_SHORT(x) (((uint32_t)(x) << CASSANDRA_ERROR_SHORT_SHIFT) & CASSANDRA_ERROR_SHORT_MASK)
#define CASSANDRA_ERROR_LONG_SHIFT 1u
#define CASSANDRA_ERROR_LONG_MASK 0x00000002u /* w1c: decoder: long (docs/format.md, section 7) */
#define CASSANDRA_ERROR_LONG(x) (((uint32_t)(x) << CASSANDRA_ERROR_LONG_SHIFT) & CASSANDRA_ERROR_LONG_MASK)
#define CASSANDRA_ERROR_CODE_SHIFT 2u
#define CASSANDRA_ERROR_CODE_MASK 0x00000004u /* w1c: decoder: code (docs/format.md, section 7) */
#define CASSANDRA_ERROR_CODE(x) (((uint32_t)(x) << CASSANDRA_ERROR_CODE_SHIFT) & CASSANDRA_ERROR_CODE_MASK)
#define CASSANDRA_ERROR_RANK_SHIFT 3u
#define CASSANDRA_ERROR_RANK_MASK 0x00000008u /* w1c: decoder: rank (docs/format.md, section 7) */
#define CASSANDRA_ERROR_RANK(x) (((uint32_t)(x) << CASSANDRA_ERROR_RANK_SHIFT) & CASSANDRA_ERROR_RANK_MASK)
#define CASSANDRA_ERROR_GROUP_SHIFT 4u
#define CASSANDRA_ERROR_GROUP_MASK 0x00000010u /* w1c: decoder: group (docs/format.md, section 7) */
#define CASSANDRA_ERROR_GROUP(x) (((uint32_t)(x) << CASSANDRA_ERROR_GROUP_SHIFT) & CASSANDRA_ERROR_GROUP_MASK)
#define CASSANDRA_ERROR_WINDOW_SHIFT 5u
#define CASSANDRA_ERROR_WINDOW_MASK 0x00000020u /* w1c: decoder: window (docs/format.md, section 7) */
#define CASSANDRA_ERROR_WINDOW(x) (((uint32_t)(x) << CASSANDRA_ERROR_WINDOW_SHIFT) & CASSANDRA_ERROR_WINDOW_MASK)
#define CASSANDRA_ERROR_COMMAND_SHIFT 6u
#define CASSANDRA_ERROR_COMMAND_MASK 0x00000040u /* w1c: decoder: command (docs/format.md, section 7) */
#define CASSANDRA_ERROR_COMMAND(x) (((uint32_t)(x) << CASSANDRA_ERROR_COMMAND_SHIFT) & CASSANDRA_ERROR_COMMAND_MASK)
#define CASSANDRA_ERROR_SLAVE_SHIFT 7u
#define CASSANDRA_ERROR_SLAVE_MASK 0x00000080u /* w1c: a read (encoder: a write) was answered with SLVERR */
#define CASSANDRA_ERROR_SLAVE(x) (((uint32_t)(x) << CASSANDRA_ERROR_SLAVE_SHIFT) & CASSANDRA_ERROR_SLAVE_MASK)
#define CASSANDRA_ERROR_DECODE_SHIFT 8u
#define CASSANDRA_ERROR_DECODE_MASK 0x00000100u /* w1c: a read (encoder: a write) was answered with DECERR */
#define CASSANDRA_ERROR_DECODE(x) (((uint32_t)(x) << CASSANDRA_ERROR_DECODE_SHIFT) & CASSANDRA_ERROR_DECODE_MASK)
#define CASSANDRA_ERROR_DESCRIPTOR_SHIFT 9u
#define CASSANDRA_ERROR_DESCRIPTOR_MASK 0x00000200u /* w1c: a descriptor was not legal and is not queued */
#define CASSANDRA_ERROR_DESCRIPTOR(x) (((uint32_t)(x) << CASSANDRA_ERROR_DESCRIPTOR_SHIFT) & CASSANDRA_ERROR_DESCRIPTOR_MASK)
#define CASSANDRA_ERROR_OVERFLOW_SHIFT 10u
#define CASSANDRA_ERROR_OVERFLOW_MASK 0x00000400u /* w1c: a descriptor was written while the queue was full and is lost */
#define CASSANDRA_ERROR_OVERFLOW(x) (((uint32_t)(x) << CASSANDRA_ERROR_OVERFLOW_SHIFT) & CASSANDRA_ERROR_OVERFLOW_MASK)
#define CASSANDRA_ERROR_ENCODE_COMMAND_SHIFT 11u
#define CASSANDRA_ERROR_ENCODE_COMMAND_MASK 0x00000800u /* w1c: encoder: command (docs/hardware/encoder.md) */
#define CASSANDRA_ERROR_ENCODE_COMMAND(x) (((uint32_t)(x) << CASSANDRA_ERROR_ENCODE_COMMAND_SHIFT) & CASSANDRA_ERROR_ENCODE_COMMAND_MASK)
#define CASSANDRA_ERROR_ENCODE_SHORT_SHIFT 12u
#define CASSANDRA_ERROR_ENCODE_SHORT_MASK 0x00001000u /* w1c: encoder: short (docs/hardware/encoder.md) */
#define CASSANDRA_ERROR_ENCODE_SHORT(x) (((uint32_t)(x) << CASSANDRA_ERROR_ENCODE_SHORT_SHIFT) & CASSANDRA_ERROR_ENCODE_SHORT_MASK)
#define CASSANDRA_ERROR_ENCODE_LONG_SHIFT 13u
#define CASSANDRA_ERROR_ENCODE_LONG_MASK 0x00002000u /* w1c: encoder: long (docs/hardware/encoder.md) */
#define CASSANDRA_ERROR_ENCODE_LONG(x) (((uint32_t)(x) << CASSANDRA_ERROR_ENCODE_LONG_SHIFT) & CASSANDRA_ERROR_ENCODE_LONG_MASK)
#define CASSANDRA_ERROR_ENCODE_NONFINITE_SHIFT 14u
#define CASSANDRA_ERROR_ENCODE_NONFINITE_MASK 0x00004000u /* w1c: encoder: nonfinite (docs/hardware/encoder.md) */
#define CASSANDRA_ERROR_ENCODE_NONFINITE(x) (((uint32_t)(x) << CASSANDRA_ERROR_ENCODE_NONFINITE_SHIFT) & CASSANDRA_ERROR_ENCODE_NONFINITE_MASK)
#define CASSANDRA_ERROR_ENCODE_MISS_SHIFT 15u
#define CASSANDRA_ERROR_ENCODE_MISS_MASK 0x00008000u /* w1c: encoder: miss (docs/hardware/encoder.md) */
#define CASSANDRA_ERROR_ENCODE_MISS(x) (((uint32_t)(x) << CASSANDRA_ERROR_ENCODE_MISS_SHIFT) & CASSANDRA_ERROR_ENCODE_MISS_MASK)
#define CASSANDRA_ERROR_ROOM_SHIFT 16u
#define CASSANDRA_ERROR_ROOM_MASK 0x00010000u /* w1c: encoder: a region did not fit its room; the rest is not written */
#define CASSANDRA_ERROR_ROOM(x) (((uint32_t)(x) << CASSANDRA_ERROR_ROOM_SHIFT) & CASSANDRA_ERROR_ROOM_MASK)
#define CASSANDRA_ERROR_GUARD_SHIFT 17u
#define CASSANDRA_ERROR_GUARD_MASK 0x00020000u /* w1c: soft error in a descriptor; memory is not accessed any more until CONTROL.reset */
#define CASSANDRA_ERROR_GUARD(x) (((uint32_t)(x) << CASSANDRA_ERROR_GUARD_SHIFT) & CASSANDRA_ERROR_GUARD_MASK)
#define CASSANDRA_ERROR_STRAY_SHIFT 18u
#define CASSANDRA_ERROR_STRAY_MASK 0x00040000u /* w1c: a beat or response that answers no open burst came and was ignored */
#define CASSANDRA_ERROR_STRAY(x) (((uint32_t)(x) << CASSANDRA_ERROR_STRAY_SHIFT) & CASSANDRA_ERROR_STRAY_MASK)

/* number of the first flagged segment since ERROR was written: those that left before it */
#define CASSANDRA_ERROR_SEGMENT 0x24u

/* address of the first burst that was answered with an error since ERROR was written, bits 31:0 */
#define CASSANDRA_ERROR_ADDRESS_LOW 0x28u

/* address of the first burst that was answered with an error since ERROR was written, bits 63:32 */
#define CASSANDRA_ERROR_ADDRESS_HIGH 0x2cu

/* command word of the segment */
#define CASSANDRA_COMMAND 0x30u
#define CASSANDRA_COMMAND_COUNT_SHIFT 0u
#define CASSANDRA_COMMAND_COUNT_MASK 0x0000ffffu /* rw: values in the segment, minus one */
#define CASSANDRA_COMMAND_COUNT(x) (((uint32_t)(x) << CASSANDRA_COMMAND_COUNT_SHIFT) & CASSANDRA_COMMAND_COUNT_MASK)
#define CASSANDRA_COMMAND_SCHEME_SHIFT 16u
#define CASSANDRA_COMMAND_SCHEME_MASK 0x00030000u /* rw: 0 unary, 1 mx, 2 exact */
#define CASSANDRA_COMMAND_SCHEME(x) (((uint32_t)(x) << CASSANDRA_COMMAND_SCHEME_SHIFT) & CASSANDRA_COMMAND_SCHEME_MASK)
#define CASSANDRA_COMMAND_TRUNCATED_SHIFT 18u
#define CASSANDRA_COMMAND_TRUNCATED_MASK 0x001c0000u /* rw: t: low bits that only the target reads */
#define CASSANDRA_COMMAND_TRUNCATED(x) (((uint32_t)(x) << CASSANDRA_COMMAND_TRUNCATED_SHIFT) & CASSANDRA_COMMAND_TRUNCATED_MASK)
#define CASSANDRA_COMMAND_TARGET_SHIFT 21u
#define CASSANDRA_COMMAND_TARGET_MASK 0x00200000u /* rw: 1 = target values, 0 = draft values */
#define CASSANDRA_COMMAND_TARGET(x) (((uint32_t)(x) << CASSANDRA_COMMAND_TARGET_SHIFT) & CASSANDRA_COMMAND_TARGET_MASK)
#define CASSANDRA_COMMAND_MIDPOINT_SHIFT 22u
#define CASSANDRA_COMMAND_MIDPOINT_MASK 0x00400000u /* rw: fill of a draft: 1 = midpoint, 0 = zero */
#define CASSANDRA_COMMAND_MIDPOINT(x) (((uint32_t)(x) << CASSANDRA_COMMAND_MIDPOINT_SHIFT) & CASSANDRA_COMMAND_MIDPOINT_MASK)
#define CASSANDRA_COMMAND_MASK_SHIFT 23u
#define CASSANDRA_COMMAND_MASK_MASK 0x00800000u /* rw: the segment has a mask stream */
#define CASSANDRA_COMMAND_MASK(x) (((uint32_t)(x) << CASSANDRA_COMMAND_MASK_SHIFT) & CASSANDRA_COMMAND_MASK_MASK)
#define CASSANDRA_COMMAND_VERIFICATION_SHIFT 24u
#define CASSANDRA_COMMAND_VERIFICATION_MASK 0x01000000u /* rw: the segment has a non-empty verification region */
#define CASSANDRA_COMMAND_VERIFICATION(x) (((uint32_t)(x) << CASSANDRA_COMMAND_VERIFICATION_SHIFT) & CASSANDRA_COMMAND_VERIFICATION_MASK)
#define CASSANDRA_COMMAND_LOG2_GROUP_SHIFT 25u
#define CASSANDRA_COMMAND_LOG2_GROUP_MASK 0x1e000000u /* rw: values in a group, as a power of two */
#define CASSANDRA_COMMAND_LOG2_GROUP(x) (((uint32_t)(x) << CASSANDRA_COMMAND_LOG2_GROUP_SHIFT) & CASSANDRA_COMMAND_LOG2_GROUP_MASK)
#define CASSANDRA_COMMAND_CODED_SHIFT 29u
#define CASSANDRA_COMMAND_CODED_MASK 0x20000000u /* rw: pruned exponents are coded (unary) */
#define CASSANDRA_COMMAND_CODED(x) (((uint32_t)(x) << CASSANDRA_COMMAND_CODED_SHIFT) & CASSANDRA_COMMAND_CODED_MASK)

/* codebook of the segment (unary) */
#define CASSANDRA_BOOK 0x34u
#define CASSANDRA_BOOK_SLOT_SHIFT 0u
#define CASSANDRA_BOOK_SLOT_MASK 0x0000000fu /* rw: a codebook that CODEBOOK has written */
#define CASSANDRA_BOOK_SLOT(x) (((uint32_t)(x) << CASSANDRA_BOOK_SLOT_SHIFT) & CASSANDRA_BOOK_SLOT_MASK)
#define CASSANDRA_BOOK_PRUNED_SHIFT 8u
#define CASSANDRA_BOOK_PRUNED_MASK 0x00000f00u /* rw: decoder: likewise, of pruned values (targets, COMMAND.coded) */
#define CASSANDRA_BOOK_PRUNED(x) (((uint32_t)(x) << CASSANDRA_BOOK_PRUNED_SHIFT) & CASSANDRA_BOOK_PRUNED_MASK)

/* address of the speculation region, bits 31:0 */
#define CASSANDRA_SPECULATION_BASE_LOW 0x38u

/* address of the speculation region, bits 63:32 */
#define CASSANDRA_SPECULATION_BASE_HIGH 0x3cu

/* address of the verification region, bits 31:0 */
#define CASSANDRA_VERIFICATION_BASE_LOW 0x40u

/* address of the verification region, bits 63:32 */
#define CASSANDRA_VERIFICATION_BASE_HIGH 0x44u

/* bytes of the speculation region (encoder: its room) */
#define CASSANDRA_SPECULATION_LENGTH 0x48u

/* bytes of the verification region (encoder: its room); a decoder does not look at it unless COMMAND has target and verification set */
#define CASSANDRA_VERIFICATION_LENGTH 0x4cu

/* puts the segment that 0x30 to 0x4c (encoder: 0x34 to 0x4c, 0x90, 0x94) describe in the queue; they keep their values */
#define CASSANDRA_START 0x50u
#define CASSANDRA_START_PUSH_SHIFT 0u
#define CASSANDRA_START_PUSH_MASK 0x00000001u /* wo: 1: queue the segment */
#define CASSANDRA_START_PUSH(x) (((uint32_t)(x) << CASSANDRA_START_PUSH_SHIFT) & CASSANDRA_START_PUSH_MASK)
#define CASSANDRA_START_FOLLOW_SHIFT 1u
#define CASSANDRA_START_FOLLOW_MASK 0x00000002u /* wo: encoder: the regions follow those of the previous segment, in the rest of their room; bases and lengths are ignored */
#define CASSANDRA_START_FOLLOW(x) (((uint32_t)(x) << CASSANDRA_START_FOLLOW_SHIFT) & CASSANDRA_START_FOLLOW_MASK)

/* writes an entry of a codebook, from entry 0 up; not while a segment that uses the slot is in the queue or on its way; a write without all byte strobes is ignored */
#define CASSANDRA_CODEBOOK 0x54u
#define CASSANDRA_CODEBOOK_EXPONENT_SHIFT 0u
#define CASSANDRA_CODEBOOK_EXPONENT_MASK 0x000000ffu /* wo: the exponent */
#define CASSANDRA_CODEBOOK_EXPONENT(x) (((uint32_t)(x) << CASSANDRA_CODEBOOK_EXPONENT_SHIFT) & CASSANDRA_CODEBOOK_EXPONENT_MASK)
#define CASSANDRA_CODEBOOK_ENTRY_SHIFT 8u
#define CASSANDRA_CODEBOOK_ENTRY_MASK 0x00001f00u /* wo: its rank */
#define CASSANDRA_CODEBOOK_ENTRY(x) (((uint32_t)(x) << CASSANDRA_CODEBOOK_ENTRY_SHIFT) & CASSANDRA_CODEBOOK_ENTRY_MASK)
#define CASSANDRA_CODEBOOK_SLOT_SHIFT 16u
#define CASSANDRA_CODEBOOK_SLOT_MASK 0x000f0000u /* wo: the codebook */
#define CASSANDRA_CODEBOOK_SLOT(x) (((uint32_t)(x) << CASSANDRA_CODEBOOK_SLOT_SHIFT) & CASSANDRA_CODEBOOK_SLOT_MASK)
#define CASSANDRA_CODEBOOK_LAST_SHIFT 24u
#define CASSANDRA_CODEBOOK_LAST_MASK 0x01000000u /* wo: the codebook ends with this entry; without it the slot is not defined */
#define CASSANDRA_CODEBOOK_LAST(x) (((uint32_t)(x) << CASSANDRA_CODEBOOK_LAST_SHIFT) & CASSANDRA_CODEBOOK_LAST_MASK)
#define CASSANDRA_CODEBOOK_EMPTY_SHIFT 25u
#define CASSANDRA_CODEBOOK_EMPTY_MASK 0x02000000u /* wo: with last and entry 0: the codebook has no entry (pruned values alone) */
#define CASSANDRA_CODEBOOK_EMPTY(x) (((uint32_t)(x) << CASSANDRA_CODEBOOK_EMPTY_SHIFT) & CASSANDRA_CODEBOOK_EMPTY_MASK)

/* which formats the decoders read, beside DECODER */
#define CASSANDRA_FORMATS 0x58u
#define CASSANDRA_FORMATS_LEAD_SHIFT 0u
#define CASSANDRA_FORMATS_LEAD_MASK 0x0000000fu /* ro: lead of the format: 1 at half rate, 2 at full */
#define CASSANDRA_FORMATS_LEAD(x) (((uint32_t)(x) << CASSANDRA_FORMATS_LEAD_SHIFT) & CASSANDRA_FORMATS_LEAD_MASK)
#define CASSANDRA_FORMATS_CODED_SHIFT 4u
#define CASSANDRA_FORMATS_CODED_MASK 0x00000010u /* ro: 1: pruned exponents may be coded */
#define CASSANDRA_FORMATS_CODED(x) (((uint32_t)(x) << CASSANDRA_FORMATS_CODED_SHIFT) & CASSANDRA_FORMATS_CODED_MASK)

/* bus words (encoder: bursts) that memory has been asked for and has not answered */
#define CASSANDRA_OUTSTANDING 0x5cu

/* values that left (encoder: came), those of flagged segments included, bits 31:0 */
#define CASSANDRA_COUNT_VALUES_LOW 0x60u

/* values that left (encoder: came), those of flagged segments included, bits 63:32 */
#define CASSANDRA_COUNT_VALUES_HIGH 0x64u

/* cycles in which STATUS.busy was set, bits 31:0 */
#define CASSANDRA_COUNT_CYCLES_LOW 0x68u

/* cycles in which STATUS.busy was set, bits 63:32 */
#define CASSANDRA_COUNT_CYCLES_HIGH 0x6cu

/* bus words read (encoder: written), bits 31:0 */
#define CASSANDRA_COUNT_WORDS_LOW 0x70u

/* bus words read (encoder: written), bits 63:32 */
#define CASSANDRA_COUNT_WORDS_HIGH 0x74u

/* cycles in which values (encoder: words) waited for their taker, bits 31:0 */
#define CASSANDRA_COUNT_STALLS_LOW 0x78u

/* cycles in which values (encoder: words) waited for their taker, bits 63:32 */
#define CASSANDRA_COUNT_STALLS_HIGH 0x7cu

/* cycles in which STATUS.busy was set and no values waited (encoder: came), bits 31:0 */
#define CASSANDRA_COUNT_IDLE_LOW 0x80u

/* cycles in which STATUS.busy was set and no values waited (encoder: came), bits 63:32 */
#define CASSANDRA_COUNT_IDLE_HIGH 0x84u

/* segments that left */
#define CASSANDRA_COUNT_SEGMENTS 0x88u

/* capabilities of the encoder */
#define CASSANDRA_ENCODER 0x8cu
#define CASSANDRA_ENCODER_LANES_SHIFT 0u
#define CASSANDRA_ENCODER_LANES_MASK 0x000000ffu /* ro: values in a cycle */
#define CASSANDRA_ENCODER_LANES(x) (((uint32_t)(x) << CASSANDRA_ENCODER_LANES_SHIFT) & CASSANDRA_ENCODER_LANES_MASK)
#define CASSANDRA_ENCODER_SCHEMES_SHIFT 8u
#define CASSANDRA_ENCODER_SCHEMES_MASK 0x00000f00u /* ro: bit i: scheme i of ENCODE_COMMAND */
#define CASSANDRA_ENCODER_SCHEMES(x) (((uint32_t)(x) << CASSANDRA_ENCODER_SCHEMES_SHIFT) & CASSANDRA_ENCODER_SCHEMES_MASK)
#define CASSANDRA_ENCODER_WINDOW_SHIFT 12u
#define CASSANDRA_ENCODER_WINDOW_MASK 0x0000f000u /* ro: rows in a window of unary codes */
#define CASSANDRA_ENCODER_WINDOW(x) (((uint32_t)(x) << CASSANDRA_ENCODER_WINDOW_SHIFT) & CASSANDRA_ENCODER_WINDOW_MASK)
#define CASSANDRA_ENCODER_CODEBOOK_SHIFT 16u
#define CASSANDRA_ENCODER_CODEBOOK_MASK 0x00ff0000u /* ro: entries of a codebook */
#define CASSANDRA_ENCODER_CODEBOOK(x) (((uint32_t)(x) << CASSANDRA_ENCODER_CODEBOOK_SHIFT) & CASSANDRA_ENCODER_CODEBOOK_MASK)
#define CASSANDRA_ENCODER_VECTOR_SHIFT 24u
#define CASSANDRA_ENCODER_VECTOR_MASK 0xff000000u /* ro: values in the longest vector, minus one */
#define CASSANDRA_ENCODER_VECTOR(x) (((uint32_t)(x) << CASSANDRA_ENCODER_VECTOR_SHIFT) & CASSANDRA_ENCODER_VECTOR_MASK)

/* command word of the segment, first part */
#define CASSANDRA_ENCODE_COMMAND 0x90u
#define CASSANDRA_ENCODE_COMMAND_COUNT_SHIFT 0u
#define CASSANDRA_ENCODE_COMMAND_COUNT_MASK 0x0000ffffu /* rw: values in the segment, minus one */
#define CASSANDRA_ENCODE_COMMAND_COUNT(x) (((uint32_t)(x) << CASSANDRA_ENCODE_COMMAND_COUNT_SHIFT) & CASSANDRA_ENCODE_COMMAND_COUNT_MASK)
#define CASSANDRA_ENCODE_COMMAND_SCHEME_SHIFT 16u
#define CASSANDRA_ENCODE_COMMAND_SCHEME_MASK 0x00030000u /* rw: 0 unary, 1 mx, 2 exact */
#define CASSANDRA_ENCODE_COMMAND_SCHEME(x) (((uint32_t)(x) << CASSANDRA_ENCODE_COMMAND_SCHEME_SHIFT) & CASSANDRA_ENCODE_COMMAND_SCHEME_MASK)
#define CASSANDRA_ENCODE_COMMAND_TRUNCATED_SHIFT 18u
#define CASSANDRA_ENCODE_COMMAND_TRUNCATED_MASK 0x001c0000u /* rw: t: low bits that only the target reads */
#define CASSANDRA_ENCODE_COMMAND_TRUNCATED(x) (((uint32_t)(x) << CASSANDRA_ENCODE_COMMAND_TRUNCATED_SHIFT) & CASSANDRA_ENCODE_COMMAND_TRUNCATED_MASK)
#define CASSANDRA_ENCODE_COMMAND_SATURATE_SHIFT 21u
#define CASSANDRA_ENCODE_COMMAND_SATURATE_MASK 0x00200000u /* rw: mx: replace values that are not finite, and count them */
#define CASSANDRA_ENCODE_COMMAND_SATURATE(x) (((uint32_t)(x) << CASSANDRA_ENCODE_COMMAND_SATURATE_SHIFT) & CASSANDRA_ENCODE_COMMAND_SATURATE_MASK)
#define CASSANDRA_ENCODE_COMMAND_MASK_SHIFT 22u
#define CASSANDRA_ENCODE_COMMAND_MASK_MASK 0x00400000u /* rw: write a mask stream, even if all is kept */
#define CASSANDRA_ENCODE_COMMAND_MASK(x) (((uint32_t)(x) << CASSANDRA_ENCODE_COMMAND_MASK_SHIFT) & CASSANDRA_ENCODE_COMMAND_MASK_MASK)
#define CASSANDRA_ENCODE_COMMAND_LOG2_GROUP_SHIFT 23u
#define CASSANDRA_ENCODE_COMMAND_LOG2_GROUP_MASK 0x07800000u /* rw: values in a group, as a power of two */
#define CASSANDRA_ENCODE_COMMAND_LOG2_GROUP(x) (((uint32_t)(x) << CASSANDRA_ENCODE_COMMAND_LOG2_GROUP_SHIFT) & CASSANDRA_ENCODE_COMMAND_LOG2_GROUP_MASK)

/* command word of the segment, the rest */
#define CASSANDRA_ENCODE_VECTOR 0x94u
#define CASSANDRA_ENCODE_VECTOR_VECTOR_SHIFT 0u
#define CASSANDRA_ENCODE_VECTOR_VECTOR_MASK 0x000000ffu /* rw: values in a vector, minus one */
#define CASSANDRA_ENCODE_VECTOR_VECTOR(x) (((uint32_t)(x) << CASSANDRA_ENCODE_VECTOR_VECTOR_SHIFT) & CASSANDRA_ENCODE_VECTOR_VECTOR_MASK)
#define CASSANDRA_ENCODE_VECTOR_KEEP_SHIFT 8u
#define CASSANDRA_ENCODE_VECTOR_KEEP_MASK 0x0001ff00u /* rw: k: values kept of each vector; all if not fewer than it has */
#define CASSANDRA_ENCODE_VECTOR_KEEP(x) (((uint32_t)(x) << CASSANDRA_ENCODE_VECTOR_KEEP_SHIFT) & CASSANDRA_ENCODE_VECTOR_KEEP_MASK)

/* parameters of the write master */
#define CASSANDRA_STORE 0x98u
#define CASSANDRA_STORE_BUS_SHIFT 0u
#define CASSANDRA_STORE_BUS_MASK 0x000000ffu /* ro: bytes of a bus word: bases and rooms are multiples of it */
#define CASSANDRA_STORE_BUS(x) (((uint32_t)(x) << CASSANDRA_STORE_BUS_SHIFT) & CASSANDRA_STORE_BUS_MASK)
#define CASSANDRA_STORE_QUEUE_SHIFT 8u
#define CASSANDRA_STORE_QUEUE_MASK 0x0000ff00u /* ro: descriptors in the queue */
#define CASSANDRA_STORE_QUEUE(x) (((uint32_t)(x) << CASSANDRA_STORE_QUEUE_SHIFT) & CASSANDRA_STORE_QUEUE_MASK)
#define CASSANDRA_STORE_BOOKS_SHIFT 16u
#define CASSANDRA_STORE_BOOKS_MASK 0x00ff0000u /* ro: codebooks that are kept */
#define CASSANDRA_STORE_BOOKS(x) (((uint32_t)(x) << CASSANDRA_STORE_BOOKS_SHIFT) & CASSANDRA_STORE_BOOKS_MASK)
#define CASSANDRA_STORE_SUPERBLOCK_SHIFT 24u
#define CASSANDRA_STORE_SUPERBLOCK_MASK 0xff000000u /* ro: superblock in cache blocks of 128 bytes */
#define CASSANDRA_STORE_SUPERBLOCK(x) (((uint32_t)(x) << CASSANDRA_STORE_SUPERBLOCK_SHIFT) & CASSANDRA_STORE_SUPERBLOCK_MASK)

/* the oldest segment that is in memory and has not been popped, with 0xa0 to 0xb0 */
#define CASSANDRA_RESULT 0x9cu
#define CASSANDRA_RESULT_VALID_SHIFT 0u
#define CASSANDRA_RESULT_VALID_MASK 0x00000001u /* ro: a result is there; if 0, mask to errors and 0xa0 to 0xb0 are undefined */
#define CASSANDRA_RESULT_VALID(x) (((uint32_t)(x) << CASSANDRA_RESULT_VALID_SHIFT) & CASSANDRA_RESULT_VALID_MASK)
#define CASSANDRA_RESULT_MASK_SHIFT 1u
#define CASSANDRA_RESULT_MASK_MASK 0x00000002u /* ro: it has a mask stream (bit 0 of its flags in the directory) */
#define CASSANDRA_RESULT_MASK(x) (((uint32_t)(x) << CASSANDRA_RESULT_MASK_SHIFT) & CASSANDRA_RESULT_MASK_MASK)
#define CASSANDRA_RESULT_FAILED_SHIFT 2u
#define CASSANDRA_RESULT_FAILED_MASK 0x00000004u /* ro: a write was answered with an error */
#define CASSANDRA_RESULT_FAILED(x) (((uint32_t)(x) << CASSANDRA_RESULT_FAILED_SHIFT) & CASSANDRA_RESULT_FAILED_MASK)
#define CASSANDRA_RESULT_ROOM_SHIFT 3u
#define CASSANDRA_RESULT_ROOM_MASK 0x00000008u /* ro: a region did not fit its room */
#define CASSANDRA_RESULT_ROOM(x) (((uint32_t)(x) << CASSANDRA_RESULT_ROOM_SHIFT) & CASSANDRA_RESULT_ROOM_MASK)
#define CASSANDRA_RESULT_ERRORS_SHIFT 8u
#define CASSANDRA_RESULT_ERRORS_MASK 0x00001f00u /* ro: causes of docs/hardware/encoder.md */
#define CASSANDRA_RESULT_ERRORS(x) (((uint32_t)(x) << CASSANDRA_RESULT_ERRORS_SHIFT) & CASSANDRA_RESULT_ERRORS_MASK)
#define CASSANDRA_RESULT_POP_SHIFT 13u
#define CASSANDRA_RESULT_POP_MASK 0x00002000u /* wo: 1: advance to the next result; no effect without one */
#define CASSANDRA_RESULT_POP(x) (((uint32_t)(x) << CASSANDRA_RESULT_POP_SHIFT) & CASSANDRA_RESULT_POP_MASK)
#define CASSANDRA_RESULT_WAITING_SHIFT 24u
#define CASSANDRA_RESULT_WAITING_MASK 0x7f000000u /* ro: segments that wait */
#define CASSANDRA_RESULT_WAITING(x) (((uint32_t)(x) << CASSANDRA_RESULT_WAITING_SHIFT) & CASSANDRA_RESULT_WAITING_MASK)

/* superblocks from the base of the first segment that it follows to its speculation region */
#define CASSANDRA_RESULT_SPECULATION_OFFSET 0xa0u

/* superblocks of its speculation region */
#define CASSANDRA_RESULT_SPECULATION_LENGTH 0xa4u

/* superblocks from the same base to its verification region */
#define CASSANDRA_RESULT_VERIFICATION_OFFSET 0xa8u

/* superblocks of its verification region */
#define CASSANDRA_RESULT_VERIFICATION_LENGTH 0xacu

/* values of it that were replaced (mx) */
#define CASSANDRA_RESULT_SATURATED 0xb0u

#endif /* CASSANDRA_REGISTERS_H */
