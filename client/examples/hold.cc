// Borrows memory of the first GPU, uses it, and gives it back. Start it twice: two programs, one GPU.
#include <gpumem/session.h>

#include <cstdio>

int main(int argc, char** argv) {
  const auto amount = gpumem::parse_bytes(argc > 1 ? argv[1] : "1GiB");
  if (!amount) return std::fprintf(stderr, "%s\n", amount.error().message.c_str()), 2;

  auto session = gpumem::Session::connect({.label = "hold"});
  if (!session) return std::fprintf(stderr, "%s\n", session.error().message.c_str()), 1;
  auto slice = session->open_slice();  // addresses up to this tenant's limit; no memory yet
  if (!slice) return std::fprintf(stderr, "%s\n", slice.error().message.c_str()), 1;

  // Waits up to ten seconds for memory that others hold now.
  const auto grown = slice->grow(*amount, {.wait = std::chrono::seconds(10)});
  if (!grown) return std::fprintf(stderr, "%s\n", grown.error().message.c_str()), 1;
  std::printf("%s at 0x%llx, tenant %s; press Enter to give it back\n", to_string(*grown).c_str(),
              static_cast<unsigned long long>(slice->base()), session->tenant().c_str());
  std::getchar();  // [base, base + grown) is device memory: kernels, cuMemcpy, any library may use it
}
