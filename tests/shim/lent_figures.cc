// A libcuda.so.1 beside the shim's libnvidia-ml.so.1 that tells of a slice: $SHIM_TEST_SLICE is
// "TOTAL USED FREE", in bytes; without FREE, the rest is free.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "client/shim/figures.h"

bool gpumem_shim_figures(const unsigned char* uuid, std::uint64_t* total, std::uint64_t* used,
                         std::uint64_t* free) {
  bool is_named = false;
  for (int i = 0; i < 16; ++i) is_named = is_named || uuid[i] != 0;
  unsigned long long read[3] = {0, 0, 0};
  const char* const text = std::getenv("SHIM_TEST_SLICE");
  if (!is_named || text == nullptr) return false;
  const int count = std::sscanf(text, "%llu %llu %llu", &read[0], &read[1], &read[2]);
  if (count < 2) return false;
  *total = read[0];
  *used = read[1];
  *free = count == 3 ? read[2] : read[0] - std::min(read[0], read[1]);
  return true;
}
