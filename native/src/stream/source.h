// Streamed target: reads the weights from the packed file in every pass.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "linear/linear.h"
#include "stream/ring.h"
#include "stream/tensor.h"

namespace cassandra::stream {

// Per-thread state: a window of decoded values that moves through a matrix.
struct Worker {
    TensorDecoder decoder;
    std::vector<uint16_t> values;
    std::unique_ptr<Room> lines;   // two tiles
    int64_t base = 0, filled = 0;  // first value of the tensor held, and number of values
    size_t slab = 0;               // index among the thread's slabs of the matrix
    int64_t segment = 0;           // the next one
    const Regions* regions = nullptr;
};

class StreamedRows;

// Memory and reading statistics. Also in native/engine_binding.py.
struct Figures {
    int64_t kept;        // bytes of arrays kept in memory
    int64_t rooms;       // bytes of read-ahead buffers and decoded values
    int64_t whole_pass;  // bytes that a pass reads, including the head
    int64_t read;        // bytes read so far
    double seconds;      // during which a read was in progress
};

// Call order: tensors, then matrices in the order of use and the embedding, then start().
class Source {
  public:
    Source(const char* path, int threads) : workers_(static_cast<size_t>(threads)), ring_(path) {}

    // Return the tensor's number.
    int add_tensor(Tensor tensor);
    // Keep an array in memory from now on. Throws like File.
    void keep(int tensor, int array);
    // Return values [first_value, first_value + out * in) of a tensor as a matrix.
    std::unique_ptr<Linear> matrix(int tensor, int64_t first_value, int64_t out, int64_t in,
                                   bool is_head);
    // Set the embedding [vocabulary, columns]: a tensor, or (tensor below 0) BF16 at a place of the
    // file.
    void set_embedding(int tensor, int64_t place, int64_t columns);
    bool has_embedding() const { return columns_ > 0; }
    // Start reading, `slab` bytes at a time, into `rooms` rooms.
    void start(int64_t slab, int rooms);

    void begin_pass(bool with_head) { ring_.begin_pass(with_head); }
    // Write a row of the embedding to out [columns]; on failure write zeros and record the error.
    void embedding_row(int64_t token, uint16_t* out);
    void require_good() { ring_.require_good(); }
    Figures figures();

  private:
    friend class StreamedRows;
    void read_row(int64_t token, uint16_t* out);

    std::vector<std::unique_ptr<Tensor>> tensors_;
    std::vector<StreamedRows*> matrices_;  // of the layers, in the order of use
    std::vector<StreamedRows*> heads_;
    std::vector<Worker> workers_;
    int64_t pass_ = 0, room_bytes_ = 0;

    std::mutex mutex_;  // protects the embedding
    const Tensor* embedding_ = nullptr;
    int64_t place_ = 0, columns_ = 0;
    TensorDecoder decoder_;
    std::vector<uint16_t> decoded_, rows_;  // segments of a row; rows [ROWS, columns] by token
    std::vector<int64_t> tokens_;           // [ROWS]
    Traffic row_traffic_;

    Ring ring_;  // declared last: its thread must end before the data it reads is destroyed
};

}  // namespace cassandra::stream
