#include "client/cli/regions/region_reader.h"

#include <algorithm>
#include <utility>

#include "cuda/memory.h"

namespace gpumem::cli {

Result<void> Staging::store(std::uint64_t address, std::size_t count) const {
  return driver_.check(driver_.api().cuMemcpyHtoD(address, bytes_.data(), count), "cuMemcpyHtoD");
}

// A copy from pageable memory returns when the bytes are read, not when they are written.
Result<void> Staging::finish() const {
  return driver_.check(driver_.api().cuCtxSynchronize(), "cuCtxSynchronize");
}

Result<void> Staging::load(std::uint64_t address, std::size_t count) {
  return driver_.check(driver_.api().cuMemcpyDtoH(bytes_.data(), address, count), "cuMemcpyDtoH");
}

Result<RegionReader> RegionReader::open(const std::filesystem::path& runtime_folder, const RegionName& name) {
  auto session = Session::connect({runtime_folder.string(), "gpumem"});
  if (!session) return session.error();
  auto region = session->map_region(name.name, {.owner = name.owner,
                                                .version = name.version,
                                                .newer_than = name.newer_than,
                                                .wait = name.wait,
                                                .stop = {}});
  if (!region) return region.error();
  return RegionReader(std::move(*session), std::move(*region));
}

Result<void> RegionReader::read(const Take& take) const {
  auto driver = cuda::Driver::open(session_.driver_folder());
  if (!driver) return driver.error();
  const auto context = cuda::CurrentContext::enter(**driver, region_.ordinal());
  if (!context) return context.error();
  Staging staging(**driver);
  for (std::uint64_t done = 0; done < size().count;) {
    const std::size_t count = std::min<std::uint64_t>(Staging::kBytes, size().count - done);
    if (auto loaded = staging.load(region_.address() + done, count); !loaded) return loaded;
    const auto more = take(staging.bytes().first(count));
    if (!more) return more.error();
    if (!*more) return {};
    done += count;
  }
  return {};
}

}  // namespace gpumem::cli
