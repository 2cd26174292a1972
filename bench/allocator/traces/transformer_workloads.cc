#include <algorithm>

#include "bench/allocator/traces/dice.h"
#include "bench/allocator/traces/tape.h"
#include "bench/allocator/traces/workloads.h"

// Training in mixed precision, one call after the other as an eager framework makes them. Which activations
// a layer keeps for its backward pass: Korthikanti et al., "Reducing Activation Recomputation in Large
// Transformer Models", 2022, section 4.1. Bytes of optimizer states: Rajbhandari et al., "ZeRO", 2020,
// section 3.1.

namespace gpumem::bench {
namespace {

constexpr std::uint64_t kHalf = 2;    // bytes of a 16-bit number
constexpr std::uint64_t kSingle = 4;  // and of a 32-bit one

struct Shape {
  std::uint64_t layers;
  std::uint64_t hidden;
  std::uint64_t heads;
  std::uint64_t inner;  ///< width of the feed-forward part
  std::uint64_t gates;  ///< matrices into it: 1, or 2 where one gates the other
  std::uint64_t vocabulary;
};

struct Batch {
  std::uint64_t rows;
  std::uint64_t length;  ///< of the longest sequence, to which the others are padded
  std::uint64_t tokens() const { return rows * length; }
};

std::vector<std::uint64_t> layer_parameters(const Shape& shape) {
  const std::uint64_t h = shape.hidden, f = shape.inner;
  std::vector<std::uint64_t> counts{h, h, 3 * h * h, 3 * h, h * h, h, h, h};
  for (std::uint64_t i = 0; i < shape.gates; ++i) counts.insert(counts.end(), {h * f, f});
  counts.insert(counts.end(), {f * h, h});
  return counts;
}

// The allocations of one layer, forward and backward.
class Layer {
 public:
  Layer(Tape& tape, const Shape& shape, const Batch& batch) : tape_(tape), shape_(shape), batch_(batch) {}

  /// Returns the layer's output. Blocks that the backward pass needs stay in `kept`.
  TapeBlock forward(TapeBlocks& kept) {
    attention(kept);
    return feed_forward(kept);
  }
  /// Frees what was kept, in the reverse order, each after the gradient that needs it.
  void backward(TapeBlocks& kept, TapeBlock& gradient) {
    while (!kept.empty()) {
      const TapeBlock one = kept.back();
      const TapeBlock next = tape_.allocate(one.bytes);
      tape_.free(one);
      kept.pop_back();
      // Masks and statistics have no gradient: what is computed beside them goes at once.
      if (one.bytes < token_bytes()) {
        tape_.free(next);
        continue;
      }
      tape_.free(gradient);
      gradient = next;
    }
  }

 private:
  std::uint64_t token_bytes() const { return batch_.tokens() * shape_.hidden * kHalf; }
  std::uint64_t score_bytes() const {
    return batch_.rows * shape_.heads * batch_.length * batch_.length * kHalf;
  }

  void normalise(TapeBlocks& kept) {
    kept.push_back(tape_.allocate(token_bytes()));
    kept.push_back(tape_.allocate(batch_.tokens() * kSingle));
    kept.push_back(tape_.allocate(batch_.tokens() * kSingle));
  }
  void attention(TapeBlocks& kept) {
    normalise(kept);
    kept.push_back(tape_.allocate(3 * token_bytes()));  // queries, keys, values
    const TapeBlock scores = tape_.allocate(score_bytes());
    tape_.temporary(batch_.length * batch_.length);  // the mask of what comes later
    kept.push_back(tape_.allocate(score_bytes()));   // softmax
    tape_.free(scores);
    kept.push_back(tape_.allocate(score_bytes() / kHalf));  // dropout's mask
    kept.push_back(tape_.allocate(score_bytes()));          // dropout
    kept.push_back(tape_.allocate(token_bytes()));          // context
    join(kept);
  }
  // A projection, dropout and the sum with what came in.
  void join(TapeBlocks& kept) {
    const TapeBlock projected = tape_.allocate(token_bytes());
    kept.push_back(tape_.allocate(token_bytes() / kHalf));
    const TapeBlock dropped = tape_.allocate(token_bytes());
    tape_.free(projected);
    kept.push_back(tape_.allocate(token_bytes()));
    tape_.free(dropped);
  }
  TapeBlock feed_forward(TapeBlocks& kept) {
    const std::uint64_t wide = batch_.tokens() * shape_.inner * kHalf;
    normalise(kept);
    for (std::uint64_t i = 0; i < shape_.gates; ++i) kept.push_back(tape_.allocate(wide));
    kept.push_back(tape_.allocate(wide));  // activation
    join(kept);
    return tape_.allocate(token_bytes());
  }

  Tape& tape_;
  const Shape& shape_;
  Batch batch_;
};

// The last projection onto the vocabulary and the loss, in single precision, and the gradient of both.
TapeBlock loss(Tape& tape, const Shape& shape, const Batch& batch) {
  const std::uint64_t logits = batch.tokens() * shape.vocabulary;
  TapeBlocks kept{tape.allocate(logits * kHalf), tape.allocate(logits * kSingle)};
  tape.temporary(kSingle);
  const TapeBlock probabilities = tape.allocate(logits * kSingle);
  tape.free(kept.back());
  kept.back() = probabilities;
  const TapeBlock gradient = tape.allocate(logits * kHalf);
  tape.free_all(kept);
  const TapeBlock into_layers = tape.allocate(batch.tokens() * shape.hidden * kHalf);
  tape.free(gradient);
  return into_layers;
}

// Parameters that learn: in half precision with its gradient, and three single-precision copies.
class Learner {
 public:
  Learner(Tape& tape, std::vector<std::uint64_t> counts) : tape_(tape), counts_(std::move(counts)) {
    for (const std::uint64_t count : counts_) tape_.allocate(count * kHalf);
    for (const std::uint64_t count : counts_) tape_.allocate(count * kSingle);
  }
  std::size_t size() const { return counts_.size(); }
  void gradient(std::size_t i) { gradients_.push_back(tape_.allocate(counts_[i] * kHalf)); }
  void forget_gradients() { tape_.free_all(gradients_); }
  void step() {
    if (!has_moments_) {
      for (const std::uint64_t count : counts_) {
        tape_.allocate(count * kSingle);
        tape_.allocate(count * kSingle);
      }
    }
    has_moments_ = true;
    TapeBlocks norms;
    for (std::size_t i = 0; i < counts_.size(); ++i) norms.push_back(tape_.allocate(kSingle));
    tape_.temporary(counts_.size() * kSingle);
    tape_.free_all(norms);
    for (const std::uint64_t count : counts_) {
      const TapeBlock single = tape_.allocate(count * kSingle);
      tape_.temporary(count * kSingle);
      tape_.free(single);
    }
  }

 private:
  Tape& tape_;
  std::vector<std::uint64_t> counts_;
  TapeBlocks gradients_;
  bool has_moments_ = false;
};

// Lengths as texts have them: few long, cut off at what the model was made for.
std::uint64_t length(Dice& dice, double median, std::uint64_t most) {
  const auto drawn = static_cast<std::uint64_t>(dice.log_normal(median, 0.6));
  return std::clamp<std::uint64_t>((drawn + 7) / 8 * 8, 64, most);
}

void workspace(Tape& tape) { tape.allocate(32ULL << 20); }  // of the matrix library, for good

}  // namespace

AllocationTrace transformer_training(std::uint64_t seed) {
  // Radford et al., "Language Models are Unsupervised Multitask Learners", 2019: the model of 774 million.
  constexpr Shape kShape{36, 1280, 20, 5120, 1, 50257};
  Tape tape;
  Dice dice(seed);
  workspace(tape);
  std::vector<std::uint64_t> counts{kShape.vocabulary * kShape.hidden, 1024 * kShape.hidden};
  const std::vector<std::uint64_t> of_layer = layer_parameters(kShape);
  for (std::uint64_t i = 0; i < kShape.layers; ++i)
    counts.insert(counts.end(), of_layer.begin(), of_layer.end());
  Learner learner(tape, std::move(counts));
  for (int iteration = 0; iteration < 24; ++iteration) {
    const Batch batch{4, length(dice, 512, 1024)};
    learner.forget_gradients();
    const TapeBlock tokens = tape.allocate(batch.tokens() * 8);
    Layer layer(tape, kShape, batch);
    std::vector<TapeBlocks> kept(kShape.layers);
    for (TapeBlocks& of_one : kept) of_one.push_back(layer.forward(of_one));
    TapeBlock gradient = loss(tape, kShape, batch);
    for (std::size_t i = kept.size(); i-- > 0;) {
      layer.backward(kept[i], gradient);
      for (std::size_t j = of_layer.size(); j-- > 0;) learner.gradient(2 + i * of_layer.size() + j);
    }
    tape.free(gradient);
    learner.gradient(1);
    learner.gradient(0);
    tape.free(tokens);
    learner.step();
  }
  return tape.finish("transformer");
}

AllocationTrace transformer_tuning(std::uint64_t seed) {
  // Touvron et al., "LLaMA", 2023, table 2: 7B. Hu et al., "LoRA", 2021: matrices of rank 8 beside queries
  // and values. Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016: each layer is computed
  // twice.
  constexpr Shape kShape{32, 4096, 32, 11008, 2, 32000};
  constexpr std::uint64_t kRank = 8;
  Tape tape;
  Dice dice(seed);
  workspace(tape);
  tape.allocate(kShape.vocabulary * kShape.hidden * kHalf);
  for (std::uint64_t i = 0; i < kShape.layers; ++i)
    for (const std::uint64_t count : layer_parameters(kShape)) tape.allocate(count * kHalf);
  tape.allocate(kShape.vocabulary * kShape.hidden * kHalf);
  Learner learner(tape, std::vector<std::uint64_t>(4 * kShape.layers, kRank * kShape.hidden));
  for (int iteration = 0; iteration < 32; ++iteration) {
    const Batch batch{4, length(dice, 640, 2048)};
    learner.forget_gradients();
    const TapeBlock tokens = tape.allocate(batch.tokens() * 8);
    Layer layer(tape, kShape, batch);
    TapeBlocks outputs, kept;
    for (std::uint64_t i = 0; i < kShape.layers; ++i) {
      outputs.push_back(layer.forward(kept));
      tape.free_all(kept);
    }
    TapeBlock gradient = loss(tape, kShape, batch);
    for (std::size_t i = kShape.layers; i-- > 0;) {
      const TapeBlock again = layer.forward(kept);
      tape.free(again);
      layer.backward(kept, gradient);
      for (std::size_t j = 0; j < 4; ++j) learner.gradient(4 * i + j);
      tape.free(outputs.back());
      outputs.pop_back();
    }
    tape.free(gradient);
    tape.free(tokens);
    learner.step();
  }
  return tape.finish("tuning");
}

}  // namespace gpumem::bench
