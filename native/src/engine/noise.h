// Choosing a token by noise that belongs to a place (cassandra_spec.drafting.choice.noise): the
// allowed token with the largest logit plus Gumbel noise of (seed, position, token).
#pragma once

#include <cmath>
#include <cstdint>

namespace cassandra {

constexpr int LIKELY = 4;

struct Top;

// Sampling parameters of a sequence. Also in native/engine_binding.py.
struct Sampler {
    double temperature;  // 0: the top token
    double top_p;        // 1: off
    double min_p;        // 0: off
    uint64_t seed;
    int64_t top_k;  // 0: off
};

// The last token that a filter allows, by logit and then by number.
struct Cut {
    float logit = -INFINITY;
    int32_t token = INT32_MAX;
    bool allows(float other, int32_t at) const {
        return other > logit || (other == logit && at <= token);
    }
};

// The two best tokens by score; of equal ones the smaller. -1: none.
struct Pick {
    int32_t token = -1, second = -1;
    double score = -INFINITY, second_score = -INFINITY;

    void add(int32_t at, double value) {
        if (at == token || at == second || !(value > -INFINITY)) return;
        if (value > score || (value == score && at < token)) {
            second = token, second_score = score;
            token = at, score = value;
        } else if (value > second_score || (value == second_score && at < second)) {
            second = at, second_score = value;
        }
    }
};

// A row of logits and the noise of its place. Scores are logit * logit_factor + noise *
// noise_factor, where the larger factor is 1 and their ratio the temperature.
struct Scan {
    const float* logits;
    int count;
    double logit_factor, noise_factor;
    uint64_t seed;
    uint32_t position;  // that the token will have
    Cut cut;
    const int32_t* likely;  // [LIKELY] tokens to begin with; -1: unused
};

struct NoiseKernels {
    // Return the sum of exp((logit - best) / temperature) over a row.
    double (*mass)(const float* logits, int count, float best, float inverse_temperature);
    // Find the two best tokens.
    void (*scan)(const Scan& scan, Pick& found);
};

namespace portable {
extern const NoiseKernels noise_kernels;
}
namespace avx2 {
extern const NoiseKernels noise_kernels;
}
namespace avx512 {
extern const NoiseKernels noise_kernels;
}
namespace neon {
extern const NoiseKernels noise_kernels;
}

// A token and its logit, in a row's order: best first, the smaller of equal ones.
struct Ranked {
    float logit;
    int32_t token;
    bool operator<(const Ranked& other) const {
        return logit > other.logit || (logit == other.logit && token < other.token);
    }
};

// Return true if a sampler leaves out tokens.
bool filters(const Sampler& sampler);

// Return the best two tokens of a row [count] whose top logits are known; the chosen token will be
// at `position`. A sampler that filters needs `room` [count].
Pick pick(const float* logits, int count, const Top& top, const Sampler& sampler, uint32_t position,
          Ranked* room);

// Return by how much a pick's best score exceeds the second, in logits.
float margin_of(const Pick& pick, const Sampler& sampler);

}  // namespace cassandra
