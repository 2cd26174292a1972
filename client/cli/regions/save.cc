#include "client/cli/regions/save.h"

#include <signal.h>

#include <iostream>

#include "client/cli/interrupt.h"
#include "client/cli/listings.h"
#include "client/cli/regions/saved_region.h"
#include "client/cli/regions/transfer_bar.h"
#include "client/cli/regions/whole_file.h"
#include "client/cli/table.h"
#include "client/cli/views.h"

namespace gpumem::cli {
namespace {

WholeFile::IfThere if_there(const SaveOptions& options) {
  return options.force ? WholeFile::IfThere::kReplace : WholeFile::IfThere::kRefuse;
}

// The checksum is known when all is written: until then the head has none.
Result<void> write_region(const RegionReader& region, WholeFile& file, const Interrupt& interrupt) {
  SavedHead head{region.size().count, region.layout().count, region.digest(), {}};
  Checksum checksum;
  checksum.add_head(head);
  if (auto begun = file.write(head.text()); !begun) return begun;
  TransferBar bar("saving", head.size);
  std::uint64_t done = 0;
  auto written = region.read([&](std::span<const char> piece) -> Result<bool> {
    if (interrupt.happened()) return Error{Code::kCancelled, "interrupted: nothing is saved"};
    checksum.add(piece);
    if (auto put = file.write(piece); !put) return put.error();
    bar.show(done += piece.size());
    return true;
  });
  if (!written) return written;
  head.checksum = checksum.finish();
  return file.write_at(0, head.text());
}

Result<std::uint64_t> write_file(const SaveOptions& options, const RegionReader& region,
                                 const Interrupt& interrupt) {
  auto file = WholeFile::create(options.file, SavedHead::kBytes + region.size().count, if_there(options));
  if (!file) return file.error();
  if (auto written = write_region(region, *file, interrupt); !written) return written.error();
  if (auto there = file->commit(); !there) return there.error();
  return region.size().count;
}

void tell(const SaveOptions& options, std::uint64_t version, std::uint64_t bytes) {
  if (options.json) {
    std::cout << json_text({{"name", options.region.name},
                            {"version", version},
                            {"bytes", bytes},
                            {"file", options.file.string()}});
  } else {
    std::cout << printable("saved '" + options.region.name + "', version " + std::to_string(version) + ": " +
                           size_text(bytes) + " in " + options.file.string())
              << "\n";
  }
  std::cout << std::flush;
}

}  // namespace

int save_region(const SaveOptions& options) {
  const Interrupt interrupt;         // before there are other threads
  (void)::signal(SIGXFSZ, SIG_IGN);  // a file that may not be so large is an error of the call
  const auto region = RegionReader::open(options.runtime_folder, options.region);
  if (!region) {
    Error error = region.error();
    if (error.code == Code::kNotFound) error.message += "; `gpumem regions` lists those that there are";
    return report(error);
  }
  const auto bytes = write_file(options, *region, interrupt);
  if (!bytes) return report(bytes.error());
  tell(options, region->version(), *bytes);
  return std::cout ? 0 : 1;
}

}  // namespace gpumem::cli
