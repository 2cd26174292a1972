#include "bench/allocator/traces/workloads.h"

namespace gpumem::bench {
namespace {

constexpr Workload kWorkloads[] = {
    {"transformer", "GPT-2 large, training, sequences of 64 to 1024", gibibytes(24), gibibytes(40),
     transformer_training},
    {"tuning", "LLaMA 7B, low-rank adapters, recomputed activations", gibibytes(16), gibibytes(40),
     transformer_tuning},
    {"convolution", "ResNet-50, training in batches of 256, with evaluation", gibibytes(12), gibibytes(40),
     convolution_training},
    {"serving", "OPT-13B, key-value blocks of requests that come and go", gibibytes(26), gibibytes(40),
     key_value_serving},
    {"mixed_batches", "ResNet-50, inference in batches of 1 to 256 on 4 streams", gibibytes(1), gibibytes(8),
     mixed_batches},
    {"small", "LSTM language model, many small blocks", mebibytes(150), mebibytes(300), small_recurrent},
    {"burst", "2 GiB for long, 16 GiB for a moment", gibibytes(14), gibibytes(20), burst},
};

}  // namespace

std::span<const Workload> workloads() { return kWorkloads; }

}  // namespace gpumem::bench
