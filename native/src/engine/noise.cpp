// The filters of sampling, and the choice of a row (engine/noise.h).

#include "engine/noise.h"

#include <algorithm>

#include "common/isa.h"
#include "engine/kernels.h"

namespace cassandra {
static_assert(LIKELY == BEST, "the top tokens are the likely ones");

namespace {

const NoiseKernels& noise_kernels() { CASSANDRA_RETURN_BEST(noise_kernels); }

// A row's tokens, best first, as far as a filter asks for them.
class Ranking {
  public:
    Ranking(const float* logits, int count, float best, double temperature, Ranked* room)
        : logits_(logits), count_(count), best_(best), window_(std::max(6.0 * temperature, 1e-3)),
          room_(room) {}

    // Return the token with a rank below count.
    const Ranked& operator[](int rank) {
        while (rank >= known_) widen();
        return room_[rank];
    }

  private:
    void widen() {
        const double least = best_ - window_;
        known_ = 0;
        for (int at = 0; at < count_; ++at)
            if (logits_[at] >= least) room_[known_++] = {logits_[at], at};
        std::sort(room_, room_ + known_);
        window_ = window_ < 1e6 ? 2.0 * window_ : INFINITY;
    }

    const float* logits_;
    const int count_;
    const float best_;
    double window_;
    Ranked* room_;
    int known_ = 0;
};

// Apply top-k, then top-p, then min-p, as cassandra_spec.drafting.choice.sampling does.
Cut cut_of(const float* logits, int count, float best, const Sampler& sampler, Ranked* room) {
    if (!filters(sampler)) return {};
    const bool by_rank = sampler.top_k > 0 && sampler.top_k < count;
    const bool by_mass = sampler.top_p < 1.0;
    const int most = by_rank ? static_cast<int>(sampler.top_k) : count;
    Ranking ranking(logits, count, best, sampler.temperature, room);
    const auto weight = [&](const Ranked& each) {
        return std::exp((static_cast<double>(each.logit) - best) / sampler.temperature);
    };
    double total = 0.0;
    if (by_mass && !by_rank)
        total = noise_kernels().mass(logits, count, best,
                                     static_cast<float>(1.0 / sampler.temperature));
    for (int rank = 0; by_mass && by_rank && rank < most; ++rank) total += weight(ranking[rank]);
    double before = 0.0;
    Ranked last = ranking[0];
    for (int rank = 0; rank < most; ++rank) {
        const Ranked each = ranking[rank];
        const double own = weight(each);
        if ((by_mass && before >= sampler.top_p * total) || own < sampler.min_p || !(own > 0.0))
            break;
        before += own;
        last = each;
    }
    return {last.logit, last.token};
}

}  // namespace

bool filters(const Sampler& sampler) {
    return sampler.temperature > 0.0 &&
           (sampler.top_k > 0 || sampler.top_p < 1.0 || sampler.min_p > 0.0);
}

Pick pick(const float* logits, int count, const Top& top, const Sampler& sampler, uint32_t position,
          Ranked* room) {
    const double temperature = sampler.temperature;
    Pick found;
    if (temperature <= 0.0) {
        for (int i = 0; i < 2 && top.index[i] >= 0; ++i) found.add(top.index[i], top.value[i]);
        return found;
    }
    const Scan row = {logits,
                      count,
                      1.0 / std::max(temperature, 1.0),
                      std::min(temperature, 1.0),
                      sampler.seed,
                      position,
                      cut_of(logits, count, top.value[0], sampler, room),
                      top.index};
    noise_kernels().scan(row, found);
    return found;
}

float margin_of(const Pick& pick, const Sampler& sampler) {
    return static_cast<float>((pick.score - pick.second_score) *
                              std::max(sampler.temperature, 1.0));
}

}  // namespace cassandra
