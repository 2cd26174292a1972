#include <algorithm>
#include <array>

#include "bench/allocator/traces/dice.h"
#include "bench/allocator/traces/tape.h"
#include "bench/allocator/traces/workloads.h"

// ResNet-50 on images of 224 x 224: He et al., "Deep Residual Learning for Image Recognition", 2016, table 1.

namespace gpumem::bench {
namespace {

constexpr std::uint64_t kSingle = 4;
constexpr std::uint64_t kHalf = 2;
constexpr std::uint64_t kImage = 3ULL * 224 * 224;

struct Convolution {
  std::uint64_t in;     ///< channels
  std::uint64_t out;    ///< channels
  std::uint64_t width;  ///< width and height of the result
  std::uint64_t kernel;

  std::uint64_t results() const { return out * width * width; }  ///< of one image
  std::uint64_t weights() const { return in * out * kernel * kernel; }
};

std::vector<Convolution> resnet50() {
  constexpr std::array<std::uint64_t, 4> kBlocks{3, 4, 6, 3};
  std::vector<Convolution> layers{{3, 64, 112, 7}};
  std::uint64_t in = 64;
  for (std::size_t stage = 0; stage < kBlocks.size(); ++stage) {
    const std::uint64_t narrow = 64ULL << stage, wide = 4 * narrow, width = 56ULL >> stage;
    for (std::uint64_t block = 0; block < kBlocks[stage]; ++block) {
      if (block == 0) layers.push_back({in, wide, width, 1});
      layers.push_back({in, narrow, width, 1});
      layers.push_back({narrow, narrow, width, 3});
      layers.push_back({narrow, wide, width, 1});
      in = wide;
    }
  }
  return layers;
}

// The workspace of a convolution library differs from layer to layer and from batch to batch. It takes up to
// a few hundred MiB: the input unrolled for a part of the images.
std::uint64_t workspace(const Convolution& layer, std::uint64_t batch, Dice& dice) {
  const std::uint64_t unrolled = layer.in * layer.kernel * layer.kernel * layer.width * layer.width * kSingle;
  const std::uint64_t images = std::max<std::uint64_t>(1, batch >> dice.below(6));
  return std::min<std::uint64_t>(unrolled * images, 512ULL << 20);
}

class Training {
 public:
  explicit Training(std::uint64_t seed) : dice_(seed), layers_(resnet50()) {
    // Weights, scale and shift of the normalisation, and its running mean and variance.
    for (const Convolution& layer : layers_) {
      tape_.allocate(layer.weights() * kSingle);
      for (int i = 0; i < 4; ++i) tape_.allocate(layer.out * kSingle);
    }
    tape_.allocate(2048 * 1000 * kSingle);
  }

  // Images come on a stream of their own and are let go on the one that computes.
  void train(std::uint64_t batch) {
    tape_.free_all(gradients_);
    const TapeBlock images = tape_.allocate(batch * kImage * kSingle, 1);
    TapeBlocks kept;
    for (const Convolution& layer : layers_) forward(layer, batch, kept);
    const TapeBlock scores = tape_.allocate(batch * 1000 * kSingle);
    backward(batch, kept, scores);
    tape_.free(images);
    if (!has_momentum_) {
      for (const Convolution& layer : layers_) tape_.allocate(layer.weights() * kSingle);
    }
    has_momentum_ = true;
  }

  void evaluate(std::uint64_t batch) {
    TapeBlock input = tape_.allocate(batch * kImage * kSingle, 1);
    for (const Convolution& layer : layers_) {
      const TapeBlock result = tape_.allocate(batch * layer.results() * kSingle);
      tape_.temporary(workspace(layer, batch, dice_));
      tape_.free(input);
      input = tape_.allocate(result.bytes);
      tape_.free(result);
    }
    tape_.free(input);
  }

  AllocationTrace finish() { return tape_.finish("convolution"); }

 private:
  // The convolution's and the normalisation's results are kept; the activation is in place.
  void forward(const Convolution& layer, std::uint64_t batch, TapeBlocks& kept) {
    const TapeBlock result = tape_.allocate(batch * layer.results() * kSingle);
    tape_.temporary(workspace(layer, batch, dice_));
    kept.push_back(result);
    kept.push_back(tape_.allocate(result.bytes));
    kept.push_back(tape_.allocate(layer.out * kSingle));  // mean and variance of this batch
    kept.push_back(tape_.allocate(layer.out * kSingle));
  }
  void backward(std::uint64_t batch, TapeBlocks& kept, TapeBlock gradient) {
    for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
      const TapeBlock of_result = tape_.allocate(batch * layer->results() * kSingle);
      for (int i = 0; i < 3; ++i) {
        tape_.free(kept.back());
        kept.pop_back();
      }
      tape_.free(gradient);
      gradients_.push_back(tape_.allocate(layer->weights() * kSingle));
      tape_.temporary(workspace(*layer, batch, dice_));
      gradient = tape_.allocate(batch * layer->results() * kSingle);
      tape_.free(of_result);
      tape_.free(kept.back());
      kept.pop_back();
    }
    tape_.free(gradient);
  }

  Tape tape_;
  Dice dice_;
  std::vector<Convolution> layers_;
  TapeBlocks gradients_;
  bool has_momentum_ = false;
};

// One request after the other, each of a batch of its own size.
AllocationTrace inference(std::uint64_t seed) {
  Tape tape;
  Dice dice(seed);
  const std::vector<Convolution> layers = resnet50();
  for (int request = 0; request < 60; ++request) {
    const std::uint64_t batch =
        std::clamp<std::uint64_t>(static_cast<std::uint64_t>(dice.log_normal(24, 1.2)), 1, 256);
    TapeBlock input = tape.allocate(batch * kImage * kHalf);
    TapeBlock shortcut = tape.allocate(input.bytes);
    for (const Convolution& layer : layers) {
      const TapeBlock result = tape.allocate(batch * layer.results() * kHalf);
      tape.temporary(workspace(layer, batch, dice) / kHalf);
      // The result of a block's widening convolution is what the next block adds to its own.
      const bool widens = layer.out > layer.in;
      tape.free(widens ? shortcut : input);
      if (widens) shortcut = input;
      input = result;
    }
    tape.free(shortcut);
    tape.free(input);
  }
  return tape.finish("inference");
}

}  // namespace

AllocationTrace convolution_training(std::uint64_t seed) {
  // Of every epoch a short last batch and an evaluation; its 1,281,167 images leave 143 for the last one.
  Training training(seed);
  for (int epoch = 0; epoch < 4; ++epoch) {
    for (int i = 0; i < 8; ++i) training.train(256);
    training.train(143);
    for (int i = 0; i < 3; ++i) training.evaluate(256);
    training.evaluate(80);
  }
  return training.finish();
}

AllocationTrace mixed_batches(std::uint64_t seed) {
  Tape weights;
  for (const Convolution& layer : resnet50()) {
    weights.allocate(layer.weights() * kHalf);
    for (int i = 0; i < 4; ++i) weights.allocate(layer.out * kHalf);
  }
  AllocationTrace whole = interleaved(
      "mixed_batches", {inference(seed), inference(seed + 1), inference(seed + 2), inference(seed + 3)});
  // The weights come first, on the default stream.
  AllocationTrace trace = weights.finish("mixed_batches");
  for (AllocatorCall call : whole.calls) {
    call.block += trace.blocks;
    trace.calls.push_back(call);
  }
  trace.blocks += whole.blocks;
  return trace;
}

}  // namespace gpumem::bench
