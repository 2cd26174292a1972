#include "daemon/host/state/journal_writer.h"

#include <algorithm>

#include "base/log.h"

namespace gpumem::host {
namespace {

// Tries to write take a thousandth of the time at most.
constexpr int kPausesOfATry = 1000;

}  // namespace

Result<void> JournalWriter::begin(const std::filesystem::path& folder, std::vector<std::string> devices,
                                  core::Broker& broker) {
  if (folder.empty()) return {};
  broker.outbox().keep_changes();
  auto journal = Journal::begin(folder, std::move(devices), broker.checkpoint());
  if (!journal) return journal.error();
  journal_ = std::move(*journal);
  return {};
}

void JournalWriter::close(const core::Broker& broker) {
  if (failed_ && (journal_->is_behind() || !journal_->write_kept()))
    static_cast<void>(journal_->rewrite(broker.checkpoint()));
  failed_.reset();
  journal_.reset();
}

bool JournalWriter::write(core::Broker& broker, core::TimePoint now) {
  if (!journal_) return true;
  broker.outbox().take_changes(changes_);
  if (changes_.empty() && !failed_) return true;
  journal_->keep(changes_);
  if (!failed_ || now >= *failed_ + pause_) write_kept(broker, now);
  shorten(broker, now);
  return !failed_;
}

void JournalWriter::write_kept(core::Broker& broker, core::TimePoint now) {
  if (journal_->is_behind()) return;
  const auto begin = std::chrono::steady_clock::now();
  if (auto written = journal_->write_kept(); !written) {
    pause_ =
        std::clamp((std::chrono::steady_clock::now() - begin) * kPausesOfATry, kShortestPause, kLongestPause);
    return fail(broker, written.error(), now);
  }
  if (!failed_) return;
  failed_.reset();
  broker.go_on_lending();
  spdlog::info("the journal is written again");
}

void JournalWriter::shorten(core::Broker& broker, core::TimePoint now) {
  if (!journal_->is_shortening()) {
    const bool is_due = journal_->is_long() || journal_->is_behind() || (failed_ && has_room_);
    const bool pauses = not_shortened_ && now < *not_shortened_ + shortening_pause_;
    if (journal_->has_much_kept() || (is_due && !pauses)) journal_->begin_to_shorten();
    return;
  }
  auto shortened = journal_->finish_shortening();
  if (shortened && !*shortened) return;
  if (!shortened && shortened.error().code == Code::kFailedPrecondition) {
    spdlog::error("the journal has been damaged, and is written anew: {}", shortened.error().message);
    const auto rewritten = journal_->rewrite(broker.checkpoint());
    shortened = rewritten ? Result<bool>(true) : rewritten.error();
  }
  if (!shortened && !not_shortened_)
    spdlog::warn("the journal cannot be shortened, which is tried again: {}", shortened.error().message);
  if (shortened && not_shortened_) spdlog::info("the journal is shortened again");
  if (shortened) {
    not_shortened_.reset();
    if (failed_) write_kept(broker, now);
    return;
  }
  shortening_pause_ = not_shortened_ ? std::min(2 * shortening_pause_, kLongestPause) : kShortestPause;
  not_shortened_ = now;
  if (journal_->is_behind()) fail(broker, shortened.error(), now);
}

void JournalWriter::fail(core::Broker& broker, const Error& error, core::TimePoint now) {
  if (!failed_) spdlog::error("nothing is lent until the journal can be written: {}", error.message);
  failed_ = now;
  has_room_ = error.code != Code::kResourceExhausted;
  why_ = "the broker's journal cannot be written (" + error.message +
         "); nothing is lent until there is room in its runtime folder";
  broker.stop_lending(why_);
}

}  // namespace gpumem::host
