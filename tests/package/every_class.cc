// Uses every class of the C++ headers; compilers.sh builds it in several ways. The first argument is the
// folder of the broker's sockets. Exit status 0: all of it worked.
#include <dlfcn.h>
#include <gpumem/memory_resource.h>
#include <gpumem/session.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace {

using gpumem::Bytes;
using gpumem::mebibytes;

void require(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::exit(1);
}

template <class Result>
auto must(Result result, const char* what) {
  if (!result) std::fprintf(stderr, "%s\n", to_string(result.error()).c_str());
  require(static_cast<bool>(result), what);
  return std::move(*result);
}

void try_session(gpumem::Session& session) {
  require(static_cast<bool>(session.ping()), "the broker answers");
  const auto usage = must(session.usage(), "there are figures");
  require(usage.size() == 1 && !usage.front().device.empty() && usage.front().pool > mebibytes(64),
          "one device");
  require(!session.tenant().empty(), "a tenant");
  const std::string words = "a handler with something to destroy";
  require(static_cast<bool>(
              session.on_pressure([words](const gpumem::Pressure&) { return Bytes{words.size()}; })),
          "a handler is set");
  require(static_cast<bool>(session.on_pressure({})), "the handler is removed");
}

void try_slice(gpumem::Session& session) {
  auto slice = must(session.open_slice({"", gpumem::mebibytes(64), "slice"}), "a slice opens");
  const Bytes grown = must(slice.grow(mebibytes(8)), "it grows");
  require(grown == mebibytes(8) && slice.committed() == grown, "its committed size");
  const auto refused = slice.grow(gpumem::gibibytes(1));
  require(!refused && refused.error().denial.has_value(), "a growth past the limit is refused with a reason");
  require(refused.error().denial->reason == gpumem::Denial::Reason::kSliceLimit,
          "the reason is the slice's limit");
  require(refused.error().denial->asked >= mebibytes(64), "the denial has figures");
  const gpumem::GrowStep steps[] = {{&slice, mebibytes(16), {}}};
  require(must(session.grow_all(steps), "a joint growth").front() >= mebibytes(16), "all grow");
  require(must(slice.shrink({}), "it shrinks").is_zero(), "it is empty");
}

void try_allocator(gpumem::Session& session) {
  auto allocator = must(session.open_allocator({"", {}, "allocator"}), "an allocator opens");
  const auto tag = must(allocator.tag("weights"), "a tag");
  const auto block = must(allocator.allocate({1000}, nullptr, {tag, {}}), "a block");
  const auto blocks = must(allocator.snapshot(), "a snapshot");
  require(blocks.size() == 1 && blocks.front().tag == "weights" && blocks.front().address == block,
          "the block is in it");
  require(must(allocator.statistics(), "statistics").in_use == Bytes{1000}, "its bytes are in use");
  require(!allocator.deallocate(block + 256, {1000}), "no block begins there");
  require(static_cast<bool>(allocator.deallocate(block, {1000})), "it is freed");
  gpumem::memory_resource resource(allocator);
  void* memory = resource.allocate(nullptr, 512);
  resource.deallocate(nullptr, memory, 512);
  try {
    (void)resource.allocate(nullptr, std::size_t{1} << 50);
    require(false, "more than there is");
  } catch (const gpumem::out_of_memory& error) {
    require(error.code() == gpumem::Code::kResourceExhausted, "there is not so much");
  }
}

// The library's own C++ runtime is hidden; the exception is one of the program's.
void try_exception() {
  ::setenv("GPUMEM_RUNTIME_DIR", "/nowhere", 1);
  const bool is_there = ::dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD) != nullptr;
  std::string words;
  try {
    require(gpumem_torch_alloc(4096, 0, nullptr) == nullptr, "no broker, no memory");
  } catch (const std::runtime_error& error) {
    words = error.what();
  }
  require(is_there == (words.find("4KiB on device 0: UNAVAILABLE") != std::string::npos),
          "the exception says why");
}

}  // namespace

int main(int count, char** arguments) {
  require(count == 2, "the folder of the broker's sockets is given");
  gpumem::SessionOptions options;
  options.runtime_folder = arguments[1];
  options.timeout = std::chrono::seconds(60);  // longer than any machine is slow
  auto session = must(gpumem::Session::connect(options), "a session");
  try_session(session);
  try_slice(session);
  try_allocator(session);
  options.runtime_folder = "/nowhere";
  require(gpumem::Session::connect(options).error().code == gpumem::Code::kUnavailable, "no broker there");
  try_exception();
  return 0;
}
