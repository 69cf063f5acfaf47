// The target of a model that is read from its packed file whenever a pass needs it.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "linear/linear.h"
#include "stream/ring.h"
#include "stream/tensor.h"

namespace cassandra::stream {

// What a thread has for itself: a run of decoded values, which goes through a matrix.
struct Worker {
    TensorDecoder decoder;
    std::vector<uint16_t> values;
    std::unique_ptr<Room> lines;   // two tiles
    int64_t base = 0, filled = 0;  // the first value of the tensor that is there, and how many
    size_t slab = 0;               // of the thread's slabs of the matrix
    int64_t segment = 0;           // the next one
    const Regions* regions = nullptr;
};

class StreamedRows;

// How much is held and was read. Also in native/engine_binding.py.
struct Figures {
    int64_t kept;        // bytes of arrays that are in memory
    int64_t rooms;       // bytes of what is read ahead, and of decoded values
    int64_t whole_pass;  // bytes that a pass reads, the head included
    int64_t read;        // bytes read so far
    double seconds;      // during which something was being read
};

// Tensors, then matrices in the order of use and the embedding, then start().
class Source {
  public:
    Source(const char* path, int threads) : workers_(static_cast<size_t>(threads)), ring_(path) {}

    // Returns its number.
    int add_tensor(Tensor tensor);
    // An array that stays in memory from now on. Throws as File.
    void keep(int tensor, int array);
    // Values [first_value, first_value + out * in) of a tensor as a matrix.
    std::unique_ptr<Linear> matrix(int tensor, int64_t first_value, int64_t out, int64_t in,
                                   bool is_head);
    // The embedding [vocabulary, columns]: of a tensor, or (tensor below 0) BF16 in the file at
    // a place.
    void set_embedding(int tensor, int64_t place, int64_t columns);
    bool has_embedding() const { return columns_ > 0; }
    // Begins to read, `slab` bytes at a time, into that many rooms.
    void start(int64_t slab, int rooms);

    void begin_pass(bool with_head) { ring_.begin_pass(with_head); }
    // A row of the embedding into out [columns]. Zeros, and a failure, if it cannot be had.
    void embedding_row(int64_t token, uint16_t* out);
    void require_good() { ring_.require_good(); }
    Figures figures();

  private:
    friend class StreamedRows;
    void read_row(int64_t token, uint16_t* out);

    std::vector<std::unique_ptr<Tensor>> tensors_;
    std::vector<StreamedRows*> matrices_;  // of layers that the engine has
    std::vector<StreamedRows*> heads_;
    std::vector<Worker> workers_;
    int64_t pass_ = 0, room_bytes_ = 0;

    std::mutex mutex_;  // of the embedding
    const Tensor* embedding_ = nullptr;
    int64_t place_ = 0, columns_ = 0;
    TensorDecoder decoder_;
    std::vector<uint16_t> decoded_, rows_;  // a row's segments; rows [ROWS, columns] by token
    std::vector<int64_t> tokens_;           // [ROWS]
    Traffic row_traffic_;

    Ring ring_;  // the last: it ends its thread before what that reads is gone
};

}  // namespace cassandra::stream
