// Holds a cache in device memory, and gives it back, down to what it must keep, when others need the memory:
//   elastic [--device gpu0] [--size 4GiB] [--keep 1GiB] [--seconds 60]
#include <gpumem/session.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>

using gpumem::Bytes;

int main(int argc, char** argv) {
  std::map<std::string, std::string> options{
      {"--device", ""}, {"--size", "4GiB"}, {"--keep", "0"}, {"--seconds", "60"}};
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc || options.count(argv[i]) == 0) {
      return std::fprintf(stderr,
                          "usage: elastic [--device gpu0] [--size BYTES] [--keep BYTES] [--seconds N]\n"),
             2;
    }
    options[argv[i]] = argv[i + 1];
  }
  const auto size = gpumem::parse_bytes(options["--size"]);
  const auto keep = gpumem::parse_bytes(options["--keep"]);
  if (!size || !keep) return std::fprintf(stderr, "%s\n", (size ? keep : size).error().message.c_str()), 2;

  auto session = gpumem::Session::connect({.label = "elastic"});
  if (!session) return std::fprintf(stderr, "%s\n", session.error().message.c_str()), 1;
  auto slice = session->open_slice({.device = options["--device"]});
  if (!slice) return std::fprintf(stderr, "%s\n", slice.error().message.c_str()), 1;

  // Runs in a thread of the library. A real cache evicts entries here, and waits for the device to be done
  // with them, before it lets go of their memory.
  const auto listening = session->on_pressure([&](const gpumem::Pressure& pressure) {
    const Bytes given = slice->release(pressure.bytes, *keep).value_or({});
    std::printf("gave %s back, %s were asked for\n", to_string(given).c_str(),
                to_string(pressure.bytes).c_str());
    std::fflush(stdout);
    return given;
  });
  if (!listening) return std::fprintf(stderr, "%s\n", listening.error().message.c_str()), 1;

  const auto grown = slice->grow(*size, {.wait = std::chrono::seconds(10), .least = *keep});
  if (!grown) return std::fprintf(stderr, "%s\n", grown.error().message.c_str()), 1;
  std::printf("%s of %s\n", to_string(*grown).c_str(), slice->device().c_str());
  std::fflush(stdout);
  std::this_thread::sleep_for(std::chrono::seconds(std::strtol(options["--seconds"].c_str(), nullptr, 10)));
  (void)session->on_pressure({});  // the handler uses the slice, which goes before the session
}
