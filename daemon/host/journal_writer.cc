#include "daemon/host/journal_writer.h"

#include "base/log.h"

namespace gpumem::host {
namespace {

constexpr auto kPauseBetweenTries = std::chrono::seconds(1);

}  // namespace

Result<void> JournalWriter::begin(const std::filesystem::path& folder, std::vector<Journal::Device> devices,
                                  core::Broker& broker) {
  if (folder.empty()) return {};
  broker.keep_changes();
  auto journal = Journal::begin(folder, std::move(devices), broker.checkpoint());
  if (!journal) return journal.error();
  journal_ = std::move(*journal);
  return {};
}

bool JournalWriter::write(core::Broker& broker, core::TimePoint now) {
  if (!journal_) return true;
  broker.take_changes(changes_);
  if (failed_) return try_again(broker, now);
  if (changes_.empty()) return true;
  if (auto written = journal_->add(changes_); !written) {
    fail(broker, written.error(), now);
    return false;
  }
  if (!journal_->is_long()) return true;
  if (auto shortened = journal_->rewrite(broker.checkpoint()); !shortened)
    spdlog::warn("the journal cannot be shortened: {}", shortened.error().message);
  return true;
}

bool JournalWriter::try_again(core::Broker& broker, core::TimePoint now) {
  if (now < *failed_ + kPauseBetweenTries) return false;
  if (auto written = journal_->rewrite(broker.checkpoint()); !written) {
    fail(broker, written.error(), now);
    return false;
  }
  failed_.reset();
  broker.go_on_lending();
  spdlog::info("the journal is written again");
  return true;
}

void JournalWriter::fail(core::Broker& broker, const Error& error, core::TimePoint now) {
  if (!failed_) spdlog::error("nothing is lent until the journal can be written: {}", error.message);
  failed_ = now;
  why_ = "the broker's journal cannot be written (" + error.message +
         "); nothing is lent until there is room in its runtime folder";
  broker.stop_lending(why_);
}

}  // namespace gpumem::host
