#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace gpumem::sim {

/// One of the driver's results. By number, so that the list does not depend on the headers' age.
struct ResultName {
  int number;
  const char* name;
  const char* text;
};

/// All results of libcuda.so.1 (CUresult), success first; of libnvidia-ml.so.1 (nvmlReturn_t).
std::span<const ResultName> cuda_results();
std::span<const ResultName> nvml_results();

/// The number of `name` among `results`: OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY or 2. Any number from 1 to
/// 999999 is taken, known or not; success is no answer.
std::optional<int> result_number(std::span<const ResultName> results, std::string_view name);

/// The name of `number` without CUDA_ERROR_ or NVML_ERROR_, or the number if it has none.
std::string result_name(std::span<const ResultName> results, int number);

}  // namespace gpumem::sim
