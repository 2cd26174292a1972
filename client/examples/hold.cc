// Borrows memory, and gives it back: of one GPU for each amount. Start it twice: two programs, one GPU.
#include <gpumem/session.h>

#include <cstdio>
#include <vector>

namespace {

int fail(const gpumem::Error& error) { return std::fprintf(stderr, "%s\n", error.message.c_str()), 1; }

}  // namespace

int main(int argc, char** argv) {
  std::vector<gpumem::Bytes> amounts;
  for (int i = 1; i < argc; ++i) {
    const auto amount = gpumem::parse_bytes(argv[i]);
    if (!amount) return fail(amount.error()), 2;
    amounts.push_back(*amount);
  }
  if (amounts.empty()) amounts.push_back(gpumem::gibibytes(1));

  auto session = gpumem::Session::connect({.label = "hold"});
  if (!session) return fail(session.error());
  const auto devices = session->usage();
  if (!devices) return fail(devices.error());
  std::vector<gpumem::Slice> slices;
  gpumem::Error refusal;
  for (const gpumem::DeviceUsage& device : *devices) {
    if (slices.size() == amounts.size()) break;
    if (device.limit.is_zero()) continue;                         // this tenant may have nothing of it
    auto slice = session->open_slice({.device = device.device});  // addresses for the pool; no memory yet
    if (!slice) refusal = slice.error();
    if (!slice && refusal.code == gpumem::Code::kNotFound) continue;  // CUDA_VISIBLE_DEVICES hides it
    if (!slice) return fail(refusal);

    // Waits up to ten seconds for memory that others hold now.
    const auto grown = slice->grow(amounts[slices.size()], {.wait = std::chrono::seconds(10)});
    if (!grown) return fail(grown.error());
    std::printf("%s at 0x%llx, tenant %s; press Enter to give it back\n", to_string(*grown).c_str(),
                static_cast<unsigned long long>(slice->base()), session->tenant().c_str());
    slices.push_back(std::move(*slice));
  }
  if (slices.empty() && !refusal.message.empty()) return fail(refusal);
  if (slices.size() < amounts.size())
    return std::fprintf(stderr, "%zu GPUs are lent to this tenant\n", slices.size()), 1;
  std::getchar();  // [base, base + grown) is device memory: kernels, cuMemcpy, any library may use it
}
