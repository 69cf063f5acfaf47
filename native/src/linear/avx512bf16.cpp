// Linear kernels for processors with a matrix unit (AMX): products of BF16 for all rows at once.
//
// A tile register holds 16 rows of 64 bytes: as a layout has them, 32 features of 16 outputs. One
// instruction multiplies them with 32 features of 1 to 8 rows of input. It adds up even and odd
// features on their own, from zero, and then their sum to the total, each step rounded: what
// Halves of linear/kernels.h does. But it takes denormal numbers for zeros, and flushes denormal
// results. All numbers of rows go this way, so a row's result is the same in all of them.
//
// Linux must permit it, once in a process. Registers are configured and released in each call.
#include <sys/syscall.h>
#include <unistd.h>

#include "linear/wide.h"

// Numbers of tile registers: macros, because the intrinsics paste them into names.
#define TILE_TOTAL 0
#define TILE_INPUT 1
#define TILE_WEIGHTS 2

namespace cassandra {
namespace avx512bf16 {
namespace {

// The intrinsics do not say what they read; without this a compiler may store it too late.
inline void finish_stores() { __asm__ volatile("" ::: "memory"); }

struct alignas(64) Configuration {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t bytes[16] = {};
    uint8_t rows[16] = {};

    explicit Configuration(int input_rows) {
        const int counts[3] = {input_rows, input_rows, 16};
        for (int tile = 0; tile < 3; ++tile) {
            bytes[tile] = 64;
            rows[tile] = static_cast<uint8_t>(counts[tile]);
        }
    }
};

// Weights of 32 features as a tile register takes them.
template <template <class> class Block>
void expand(const decltype(Block<Wide>::table({}))& table, const uint8_t* data, uint8_t* room) {
    for (int block = 0; block < 4; ++block) {
        __m512i words[4];
        Block<Wide>::decode(data + Block<Wide>::kBytes * block, table, words);
        CASSANDRA_UNROLL
        for (int c = 0; c < 4; ++c) _mm512_store_si512(room + 256 * block + 64 * c, words[c]);
    }
}

inline void multiply(const LinearJob& job, int64_t k, const uint8_t* weights) {
    finish_stores();
    _tile_loadd(TILE_WEIGHTS, weights, 64);
    _tile_loadd(TILE_INPUT, job.words + k, 2 * job.x_stride);
    _tile_dpbf16ps(TILE_TOTAL, TILE_INPUT, TILE_WEIGHTS);
}

// A tile of BF16 is read where it lies. Other forms are decoded kAhead blocks before they are
// multiplied: a tile register cannot be loaded from stores that are still under way.
template <template <class> class Block> void amx_tile(const LinearJob& job, const uint8_t* data) {
    constexpr int kBytes = 4 * Block<Wide>::kBytes;
    if constexpr (kBytes == 1024) {
        for (int64_t k = 0; k < job.features; k += 32, data += kBytes) {
            prefetch_lines<kBytes / 64>(data);
            multiply(job, k, data);
        }
    } else {
        constexpr int kAhead = 3, kRooms = 4;
        alignas(64) uint8_t rooms[kRooms][1024];
        const int64_t blocks = job.features / 32;
        const auto table = Block<Wide>::table(job);
        for (int64_t block = 0; block < blocks + kAhead; ++block, data += kBytes) {
            if (block < blocks) {
                prefetch_lines<kBytes / 64>(data);
                expand<Block>(table, data, rooms[block % kRooms]);
            }
            const int64_t ready = block - kAhead;
            if (ready >= 0) multiply(job, 32 * ready, rooms[ready % kRooms]);
        }
    }
}

template <template <class> class Block> void amx_run(const LinearJob& job) {
    alignas(64) float all[kMostRows][16];
    const Configuration configuration(job.rows);
    finish_stores();
    _tile_loadconfig(&configuration);
    const uint8_t* tile = job.tile;
    float* y = job.y;
    for (int64_t i = 0; i < job.tiles; ++i, tile += job.tile_bytes, y += 16) {
        _tile_zero(TILE_TOTAL);
        amx_tile<Block>(job, tile);
        _tile_stored(TILE_TOTAL, all, 64);
        const int64_t lanes = i + 1 < job.tiles ? 16 : job.last_lanes;
        for (int row = 0; row < job.rows; ++row)
            std::memcpy(y + row * job.y_stride, all[row],
                        static_cast<size_t>(lanes) * sizeof(float));
    }
    _tile_release();
}

LinearKernels kernels() {
    LinearKernels result = make_kernels<Wide>();
    constexpr LinearKernel words[3] = {amx_run<Bf16>, amx_run<Packed12>, amx_run<Packed8>};
    for (int form = 0; form < 3; ++form) result.of[form][0] = result.of[form][1] = words[form];
    return result;
}

// The request of arch_prctl for the state of tiles.
bool ask_for_tiles() {
#ifdef __linux__
    constexpr long kRequest = 0x1023, kTileData = 18;
    return __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16") &&
           syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
#else
    return false;
#endif
}

}  // namespace
}  // namespace avx512bf16

const LinearKernels avx512bf16::linear_kernels = avx512bf16::kernels();

bool has_amx() {
    static const bool has = avx512bf16::ask_for_tiles();
    return has;
}

}  // namespace cassandra
