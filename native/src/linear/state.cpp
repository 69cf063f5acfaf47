// The state of a layer: what it keeps beside its parts, as bytes. Both make the layer again.
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "linear/layout.h"
#include "linear/linear.h"

namespace cassandra {
namespace {

void require(bool good, const char* what) {
    if (!good) throw std::invalid_argument(std::string("the state of a matrix must ") + what);
}

// Appends what it visits to bytes.
struct Writer {
    std::vector<uint8_t>& to;

    void copy(const void* from, size_t bytes) {
        const auto* first = static_cast<const uint8_t*>(from);
        to.insert(to.end(), first, first + bytes);
    }
    template <class T> void operator()(const T& value) { copy(&value, sizeof value); }
    template <class T> void operator()(const std::vector<T>& values) {
        (*this)(static_cast<uint64_t>(values.size()));
        copy(values.data(), sizeof(T) * values.size());
    }
};

// Reads what it visits from bytes.
struct Reader {
    const uint8_t* from;
    size_t left;

    void copy(void* to, size_t bytes) {
        require(bytes <= left, "be whole");
        if (bytes) std::memcpy(to, from, bytes);
        from += bytes, left -= bytes;
    }
    template <class T> void operator()(T& value) {
        static_assert(std::is_trivially_copyable_v<T>);
        copy(&value, sizeof value);
    }
    void operator()(bool& value) {
        uint8_t octet;
        copy(&octet, 1);
        require(octet < 2, "have yes or no where it asks for it");
        value = octet != 0;
    }
    template <class T> void operator()(std::vector<T>& values) {
        uint64_t count;
        (*this)(count);
        require(count <= left / sizeof(T), "be whole");
        values.resize(count);
        copy(values.data(), sizeof(T) * count);
    }
};

bool ascends(const std::vector<size_t>& ends, size_t last) {
    return std::is_sorted(ends.begin(), ends.end()) && (ends.empty() || ends.back() == last);
}

// Return true if the rounds of each pair of `tiles` fill the bytes between its starts.
bool fits(const PatchIndex& index, int64_t tiles, int64_t blocks) {
    const int64_t pairs = (tiles + 1) / 2;
    if (static_cast<int64_t>(index.starts.size()) != pairs + 1 || index.starts[0] != 0 ||
        static_cast<int64_t>(index.counts.size()) != pairs * blocks)
        return false;
    for (int64_t pair = 0; pair < pairs; ++pair) {
        int64_t rounds = 0;
        for (int64_t block = 0; block < blocks; ++block)
            rounds += index.counts[static_cast<size_t>(pair * blocks + block)];
        const int64_t count = std::min<int64_t>(2, tiles - 2 * pair);
        const auto at = static_cast<size_t>(pair);
        const auto bytes = static_cast<int64_t>(sizeof(uint16_t)) * count * rounds;
        if (index.starts[at + 1] - index.starts[at] != bytes) return false;
    }
    return true;
}

}  // namespace

template <class Archive, class Self> void Linear::visit(Archive& archive, Self& self) {
    auto& layout = self.layout_;
    archive(layout.form), archive(layout.features), archive(layout.group), archive(layout.odd);
    archive(layout.table), archive(self.out_), archive(self.patched_);
    archive(self.escapes_), archive(self.escape_ends_);
    for (auto& index : self.patches_) archive(index.starts), archive(index.counts);
}

std::vector<uint8_t> Linear::state() const {
    require(!source_ && !own_draft_, "be of a matrix in memory, with the draft beside it");
    std::vector<uint8_t> bytes;
    Writer writer{bytes};
    visit(writer, *this);
    return bytes;
}

std::unique_ptr<Linear> Linear::restore(const uint8_t* state, size_t bytes, int64_t out, int64_t in,
                                        Streams& streams, const Linear* draft) {
    std::unique_ptr<Linear> self(new Linear);
    Reader form{state, bytes}, reader = form;
    form(self->layout_.form);
    const auto threads = static_cast<size_t>(streams.threads());
    if (self->layout_.form == Form::planes) {
        self->draft_ = draft;
        self->patches_.resize(threads);
    }
    visit(reader, *self);
    self->parts_.resize(threads);
    require(reader.left == 0, "have no more bytes");
    self->check_state(out, in);
    self->tile_bytes_ = self->layout_.tile_bytes();
    for (int thread = 0; thread < streams.threads(); ++thread)
        self->parts_[static_cast<size_t>(thread)] =
            streams.reserve(thread, self->part_bytes(thread));
    return self;
}

// Throw unless kernels may read the layer whatever its parts hold.
void Linear::check_state(int64_t out, int64_t in) const {
    const LinearLayout& layout = layout_;
    require(out_ == out && layout.features == in, "be of the matrix's outputs and inputs");
    require(static_cast<unsigned>(layout.form) < kForms, "have a form");
    require(layout.group == 32 || layout.group == 64, "have groups of 32 or 64");
    const bool tabled = layout.form == Form::packed12 || layout.form == Form::packed8;
    require(layout.table.size() == (tabled ? 32 : 0),
            "have a table of 32 words where it needs one");
    const auto count = static_cast<size_t>(tiles());
    require(escape_ends_.size() == (escapes_.empty() ? 0 : count), "have escapes for each tile");
    require(ascends(escape_ends_, escapes_.size()), "have escapes in order");
    for (const Escape& each : escapes_)
        require(each.feature >= 0 && each.feature < in && each.lane >= 0 && each.lane < kTile,
                "have escapes inside the matrix");
    for (int64_t tile = 0; tile < static_cast<int64_t>(escape_ends_.size()); ++tile)
        for (auto [at, end] = escapes_of(tile); at != end; ++at)
            require(kTile * tile + at->lane < out, "have escapes inside the matrix");
    if (layout.form != Form::planes) return;
    const bool beside = draft_ && draft_->out_ == out && draft_->in_features() == in &&
                        draft_->threads() == threads() && draft_->layout_.group == layout.group &&
                        (draft_->form() == Form::draft5 || draft_->form() == Form::draft4) &&
                        draft_->layout_.odd;
    require(beside, "have the draft that it is the rest of");
    for (int thread = 0; thread < threads(); ++thread)
        require(fits(patches_of(thread), first_tile(thread + 1) - first_tile(thread),
                     layout.stored_features() / 32),
                "have as many patches as it counts");
}

}  // namespace cassandra
