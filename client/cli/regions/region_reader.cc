#include "client/cli/regions/region_reader.h"

#include <algorithm>
#include <utility>

#include "client/cli/regions/array_layout.h"
#include "client/cli/regions/staging.h"
#include "cuda/memory.h"

namespace gpumem::cli {

Result<RegionReader> RegionReader::open(const std::filesystem::path& runtime_folder, const RegionName& name) {
  auto session = Session::connect({runtime_folder.string(), "gpumem"});
  if (!session) return session.error();
  auto region = session->map_region(
      name.name, {.owner = name.owner, .version = name.version, .wait = name.wait, .stop = {}});
  if (!region) return region.error();
  return RegionReader(std::move(*session), std::move(*region));
}

Result<void> RegionReader::read(const std::vector<Range>& ranges, const Take& take) const {
  auto driver = cuda::Driver::open(session_.driver_folder());
  if (!driver) return driver.error();
  const auto context = cuda::CurrentContext::enter(**driver, region_.ordinal());
  if (!context) return context.error();
  Staging staging(**driver);
  for (const Range& range : ranges) {
    for (std::uint64_t done = 0; done < range.size;) {
      const std::size_t count = std::min<std::uint64_t>(Staging::kBytes, range.size - done);
      if (auto loaded = staging.load(region_.address() + range.begin + done, count); !loaded) return loaded;
      const auto more = take(staging.bytes().first(count));
      if (!more) return more.error();
      if (!*more) return {};
      done += count;
    }
  }
  return {};
}

Result<std::string> RegionReader::read_layout() const {
  std::string bytes;
  const std::uint64_t count = layout().count;
  if (count > std::min<std::uint64_t>(size().count, ArrayLayout::kMostBytes))
    return Error{Code::kInvalidArgument,
                 "its layout has " + std::to_string(count) + " bytes: that is none of arrays"};
  const auto read_all = read({{size().count - count, count}}, [&bytes](std::span<const char> piece) {
    bytes.append(piece.data(), piece.size());
    return Result<bool>(true);
  });
  if (!read_all) return read_all.error();
  return bytes;
}

}  // namespace gpumem::cli
