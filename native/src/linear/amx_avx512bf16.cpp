// Linear kernels for processors with a matrix unit (AMX): products of BF16 for all rows at once.
//
// A tile register holds 16 rows of 64 bytes: as a layout stores them, 32 features of 16 outputs.
// One instruction multiplies them with 32 features of 1 to 16 rows of input. It sums even and odd
// features separately, from zero, and then adds both to the total, rounding each step, like Halves
// in linear/kernels.h. But it treats denormal inputs as zero and flushes denormal results. The same
// path serves every number of rows, so a row's result does not depend on it.
//
// Linux must permit AMX, once per process. Registers are configured and released in each call.
#include <sys/syscall.h>
#include <unistd.h>

#include "linear/plane_kernels.h"
#include "linear/wide.h"

// Numbers of tile registers: macros, because the intrinsics paste them into names.
#define TILE_TOTAL_0 0
#define TILE_TOTAL_1 1
#define TILE_INPUT 2
#define TILE_WEIGHTS 3

namespace cassandra {
namespace avx512bf16 {
namespace {

// The intrinsics do not declare the memory they read; without this a compiler may delay stores.
inline void finish_stores() { __asm__ volatile("" ::: "memory"); }

struct alignas(64) Configuration {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t bytes[16] = {};
    uint8_t rows[16] = {};

    explicit Configuration(int input_rows) {
        const int counts[4] = {input_rows, input_rows, input_rows, 16};
        for (int tile = 0; tile < 4; ++tile) {
            bytes[tile] = 64;
            rows[tile] = static_cast<uint8_t>(counts[tile]);
        }
    }
};

// Weights of 32 features in tile register layout.
template <template <class> class Block, int N>
void expand(const decltype(Block<Wide>::table({}))& table, const uint8_t* data, uint8_t* room) {
    for (int block = 0; block < 4; ++block) {
        __m512i words[4];
        Block<Wide>::template decode<N>(data + N * Block<Wide>::kBytes * block, table, words);
        CASSANDRA_UNROLL
        for (int c = 0; c < 4; ++c) _mm512_store_si512(room + 256 * block + 64 * c, words[c]);
    }
}

// Weights of 32 features of a tile, the block with that number: tiles alternate.
template <int N>
void multiply(const LinearJob& job, int row, int64_t block, const uint8_t* weights, int stride) {
    finish_stores();
    _tile_loadd(TILE_WEIGHTS, weights, stride);
    _tile_loadd(TILE_INPUT, job.words + row * job.x_stride + 32 * (block / N), 2 * job.x_stride);
    if (block % N == 0)
        _tile_dpbf16ps(TILE_TOTAL_0, TILE_INPUT, TILE_WEIGHTS);
    else
        _tile_dpbf16ps(TILE_TOTAL_1, TILE_INPUT, TILE_WEIGHTS);
}

// Tiles of BF16 are loaded directly. Other forms are decoded kAhead blocks before they are
// multiplied, because loading a tile register from pending stores stalls.
template <template <class> class Block, int N>
void amx_tiles(const LinearJob& job, int row, const uint8_t* data) {
    constexpr int kBytes = 4 * Block<Wide>::kBytes;
    const int64_t blocks = N * (job.features / 32);
    const auto lines = [&data](int64_t block) {
        return data + block / N * (N * kBytes) + 64 * (block % N);
    };
    if constexpr (kBytes == 1024) {
        for (int64_t block = 0; block < blocks; ++block) {
            prefetch_lines<kBytes / 64>(data, block * kBytes);
            multiply<N>(job, row, block, lines(block), 64 * N);
        }
    } else {
        constexpr int kAhead = 3, kRooms = 4;
        alignas(64) uint8_t rooms[kRooms][1024];
        const auto table = Block<Wide>::table(job);
        for (int64_t block = 0; block < blocks + kAhead; ++block) {
            if (block < blocks) {
                prefetch_lines<kBytes / 64>(data, block * kBytes);
                expand<Block, N>(table, lines(block), rooms[block % kRooms]);
            }
            const int64_t ready = block - kAhead;
            if (ready >= 0) multiply<N>(job, row, ready, rooms[ready % kRooms], 64);
        }
    }
}

// Compute the outputs of a panel of rows. Unused rows of the last panel are multiplied and
// discarded.
template <int N, class Multiply>
void amx_outputs(const LinearJob& job, int first, float* y, int64_t last_lanes,
                 Multiply multiply_all) {
    alignas(64) float all[PANEL_ROWS][32];
    _tile_zero(TILE_TOTAL_0);
    _tile_zero(TILE_TOTAL_1);
    multiply_all();
    _tile_stored(TILE_TOTAL_0, all, sizeof all[0]);
    _tile_stored(TILE_TOTAL_1, all[0] + 16, sizeof all[0]);
    const auto count = static_cast<size_t>(16 * (N - 1) + last_lanes);
    for (int row = 0; row < PANEL_ROWS && first + row < job.rows; ++row)
        std::memcpy(y + (first + row) * job.y_stride, all[row], count * sizeof(float));
}

// Planes: blocks of all tiles are written before they are multiplied.
template <int BITS, int N> void amx_planes(const LinearJob& job, int row, const uint8_t* data) {
    typename Ahead<Wide, BITS>::template Of<N> source(job, data);
    for (int64_t block = 0; block < N * (job.features / 32); block += N) {
        const uint8_t* lines = source.next();
        for (int tile = 0; tile < N; ++tile)
            multiply<N>(job, row, block + tile, lines + 64 * tile, 64 * N);
    }
}

// Call outputs(count, data, first row, y, lanes of the last) for all tiles and panels of rows.
template <class Outputs> void amx_panels(const LinearJob& job, Outputs outputs) {
    const Configuration configuration(job.rows < PANEL_ROWS ? job.rows : PANEL_ROWS);
    finish_stores();
    _tile_loadconfig(&configuration);
    for_tiles(job, [&](auto count, const uint8_t* data, float* y, int64_t last_lanes) {
        for (int row = 0; row < job.rows; row += PANEL_ROWS)
            outputs(count, data, row, y, last_lanes);
    });
    _tile_release();
}

template <template <class> class Block> void amx_run(const LinearJob& job) {
    amx_panels(job, [&](auto count, const uint8_t* data, int row, float* y, int64_t lanes) {
        constexpr int N = decltype(count)::value;
        amx_outputs<N>(job, row, y, lanes, [&] { amx_tiles<Block, N>(job, row, data); });
    });
}

// More than a panel of rows take turns over tiles that are written once.
template <int BITS> void amx_run_planes(const LinearJob& job) {
    amx_panels(job, [&](auto count, const uint8_t* data, int row, float* y, int64_t lanes) {
        constexpr int N = decltype(count)::value;
        if (job.rows <= PANEL_ROWS)
            return amx_outputs<N>(job, row, y, lanes, [&] { amx_planes<BITS, N>(job, row, data); });
        if (row == 0) expand_tiles<Wide, BITS, N>(job, data, job.room);
        amx_outputs<N>(job, row, y, lanes, [&] { amx_tiles<Bf16, N>(job, row, job.room); });
    });
}

// The arch_prctl request for tile state.
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

const LinearKernel amx_kernels[5] = {amx_run<Bf16>, amx_run<Packed12>, amx_run<Packed8>,
                                     amx_run_planes<5>, amx_run_planes<4>};

}  // namespace avx512bf16

bool has_amx() {
    static const bool has = avx512bf16::ask_for_tiles();
    return has;
}

}  // namespace cassandra
