#include <algorithm>

#include "bench/allocator/traces/dice.h"
#include "bench/allocator/traces/tape.h"
#include "bench/allocator/traces/workloads.h"

// A server of a language model that decodes for many requests at once: Kwon et al., "Efficient Memory
// Management for Large Language Model Serving with PagedAttention", 2023: OPT-13B, keys and values in blocks
// of 16 tokens, prompts and answers as long as in the chats of ShareGPT (section 6.1: on average 161 and 338
// tokens). Here each block is allocated by itself, where that server takes one array for all.

namespace gpumem::bench {
namespace {

constexpr std::uint64_t kHalf = 2;
constexpr std::uint64_t kLayers = 40;
constexpr std::uint64_t kHidden = 5120;
constexpr std::uint64_t kVocabulary = 50272;
constexpr std::uint64_t kBlockTokens = 16;
constexpr std::uint64_t kBlockBytes = kBlockTokens * kLayers * 2 * kHidden * kHalf;
constexpr std::uint64_t kMostBlocks = 900;

enum Stream : std::uint32_t { kDecode = 0, kPrefill = 1, kCopies = 2 };

struct Request {
  TapeBlocks blocks;
  std::uint64_t tokens = 0;
  std::uint64_t end = 0;  ///< tokens when it is answered
};

class Server {
 public:
  explicit Server(std::uint64_t seed) : dice_(seed) {
    tape_.allocate(kVocabulary * kHidden * kHalf);
    for (std::uint64_t i = 0; i < kLayers; ++i)
      for (const std::uint64_t count : {3 * kHidden, kHidden, 4 * kHidden, 4 * kHidden})
        tape_.allocate(count * kHidden * kHalf);
  }

  void step() {
    // A prompt that would not fit waits, as it would in line before such a server.
    if (dice_.chance(0.2)) accept();
    if (requests_.empty()) return;
    decode();
    for (Request& request : requests_) {
      ++request.tokens;
      if (request.tokens > request.blocks.size() * kBlockTokens) grow(request, kDecode);
    }
    std::erase_if(requests_, [this](Request& request) {
      if (request.tokens < request.end) return false;
      answer(request);
      return true;
    });
  }
  AllocationTrace finish() { return tape_.finish("serving"); }

 private:
  std::uint64_t tokens(double median) {
    return std::clamp<std::uint64_t>(static_cast<std::uint64_t>(dice_.log_normal(median, 1)), 4, 1024);
  }
  void grow(Request& request, Stream stream) {
    request.blocks.push_back(tape_.allocate(kBlockBytes, stream));
  }
  // The prompt's tokens all at once, on a stream of their own.
  void accept() {
    Request request;
    const std::uint64_t prompt = tokens(98);  // a mean of 161, with the spread of 1
    request.tokens = prompt;
    request.end = prompt + tokens(205);  // a mean of 338
    const std::uint64_t most = (request.end + kBlockTokens) / kBlockTokens;
    if (promised_ + most > kMostBlocks) return;
    promised_ += most;
    const TapeBlock input = tape_.allocate(prompt * 8, kCopies);
    for (std::uint64_t i = 0; i < kLayers; ++i) layer(prompt, kPrefill);
    while (request.blocks.size() * kBlockTokens < prompt) grow(request, kPrefill);
    tape_.free(input, kPrefill);
    requests_.push_back(std::move(request));
  }
  void layer(std::uint64_t rows, Stream stream) {
    const TapeBlock hidden = tape_.allocate(rows * kHidden * kHalf, stream);
    tape_.temporary(rows * 3 * kHidden * kHalf, stream);
    tape_.temporary(rows * 4 * kHidden * kHalf, stream);
    tape_.free(hidden, stream);
  }
  void decode() {
    const std::uint64_t rows = requests_.size();
    for (std::uint64_t i = 0; i < kLayers; ++i) layer(rows, kDecode);
    const TapeBlock logits = tape_.allocate(rows * kVocabulary * kHalf, kDecode);
    tape_.temporary(rows * kVocabulary * 4, kDecode);
    const TapeBlock next = tape_.allocate(rows * 8, kDecode);
    tape_.free(logits, kDecode);
    tape_.free(next, kCopies);
  }
  void answer(Request& request) {
    promised_ -= std::min(promised_, (request.end + kBlockTokens) / kBlockTokens);
    tape_.free_all(request.blocks, kDecode);
  }

  Tape tape_;
  Dice dice_;
  std::vector<Request> requests_;
  std::uint64_t promised_ = 0;  ///< blocks that the requests will need at most
};

}  // namespace

AllocationTrace key_value_serving(std::uint64_t seed) {
  Server server(seed);
  for (int i = 0; i < 1500; ++i) server.step();
  return server.finish();
}

}  // namespace gpumem::bench
