// Allocates blocks of device memory of any size, in the order of a stream, and shows what that came to:
//   allocate [64MiB]
#include <gpumem/session.h>

#include <cstdio>
#include <vector>

int main(int argc, char** argv) {
  const auto size = gpumem::parse_bytes(argc > 1 ? argv[1] : "64MiB");
  if (!size) return std::fprintf(stderr, "%s\n", size.error().message.c_str()), 2;

  auto session = gpumem::Session::connect({.label = "allocate"});
  if (!session) return std::fprintf(stderr, "%s\n", session.error().message.c_str()), 1;
  auto allocator = session->open_allocator({.wait = std::chrono::seconds(10)});  // for what others hold now
  if (!allocator) return std::fprintf(stderr, "%s\n", allocator.error().message.c_str()), 1;

  void* const stream = nullptr;  // the default stream; any cudaStream_t or CUstream
  std::vector<std::uint64_t> blocks;
  for (int i = 0; i < 8; ++i) {
    const auto block = allocator->allocate({size->count / 8}, stream);
    if (!block) return std::fprintf(stderr, "%s\n", block.error().message.c_str()), 1;
    blocks.push_back(*block);  // device memory: kernels, cuMemcpy, any library may use it
  }
  const auto held = allocator->statistics();
  if (!held) return std::fprintf(stderr, "%s\n", held.error().message.c_str()), 1;
  std::printf("%zu blocks at 0x%llx ...: %s in use, %s lent by the broker\n", blocks.size(),
              static_cast<unsigned long long>(blocks[0]), to_string(held->in_use).c_str(),
              to_string(held->committed).c_str());

  // Work given to the stream so far may still use them. They serve the stream again at once, and others after
  // it.
  for (const std::uint64_t block : blocks) {
    const auto freed = allocator->deallocate(block, {size->count / 8}, stream);
    if (!freed) return std::fprintf(stderr, "%s\n", freed.error().message.c_str()), 1;
  }
  const auto given =
      allocator->trim();  // goes by itself after AllocatorOptions::idle, or when others need it
  if (!given) return std::fprintf(stderr, "%s\n", given.error().message.c_str()), 1;
  std::printf("%s given back\n", to_string(*given).c_str());
}
