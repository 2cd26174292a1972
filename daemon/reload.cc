#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "base/log.h"
#include "daemon/configuration.h"
#include "daemon/daemon.h"

// The configuration, and the accounts that it names, read again while the broker runs.

namespace gpumem {
namespace {

core::Unapplied unapplied(const host::Config& in_force, const host::Config& read) {
  core::Unapplied all;
  const auto note = [&all](const char* key, const std::string& old, const std::string& wanted) {
    if (old == wanted) return;
    all.push_back(std::string(key) + " stays '" + old + "': '" + wanted + "' needs a restart of the broker");
  };
  note("runtime_dir", in_force.runtime_folder, read.runtime_folder);
  note("state_dir", in_force.state_folder, read.state_folder);
  note("socket_group", in_force.socket_group, read.socket_group);
  const auto word = [](bool truth) { return std::string(truth ? "true" : "false"); };
  note("[kubernetes] look_for_pods", word(in_force.kubernetes.look_for_pods),
       word(read.kubernetes.look_for_pods));
  note("[kubernetes] cgroup_root", in_force.kubernetes.cgroup_root, read.kubernetes.cgroup_root);
  note("[metrics] listen", in_force.metrics.listen, read.metrics.listen);
  const auto store = [](const host::Config& one) { return one.host ? one.host->size.text() : "none"; };
  note("[host] size", store(in_force), store(read));
  const auto kind = [](const host::Config& one) {
    return std::string(one.host && one.host->is_of_driver ? "driver" : "memfd");
  };
  if (in_force.host && read.host) note("[host] kind", kind(in_force), kind(read));
  note("fabric_handles", word(in_force.fabric_handles), word(read.fabric_handles));
  return all;
}

}  // namespace

// SIGHUP wakes the thread that reloads, in turn with all else that signals ask for.
void Daemon::ask_for_reload(ReloadAnswer answer) {
  {
    const MutexLock lock(reloads_mutex_);
    if (reloads_) {
      reloads_->push_back(std::move(answer));
      ::kill(::getpid(), SIGHUP);
      return;
    }
  }
  answer(Error{Code::kUnavailable, "the broker is stopping"});
}

Result<core::Unapplied> Daemon::reload() {
  std::vector<ReloadAnswer> asked;
  {
    const MutexLock lock(reloads_mutex_);
    if (reloads_) asked.swap(*reloads_);
  }
  auto reloaded = read_again();
  for (const auto& answer : asked) answer(reloaded);
  return reloaded;
}

void Daemon::refuse_reloads() {
  std::optional<std::vector<ReloadAnswer>> asked;
  {
    const MutexLock lock(reloads_mutex_);
    asked.swap(reloads_);
  }
  if (!asked) return;
  for (const auto& answer : *asked) answer(Error{Code::kUnavailable, "the broker is stopping"});
}

Result<core::Unapplied> Daemon::read_again() {
  auto config = read_config(options_);
  if (!config) return config.error();
  subordinates_.read(SubordinateIds::Again::kAll);
  host::Accounts accounts = host::look_up(*config, in_force_);
  if (auto known = known_accounts_.check(accounts); !known) return known.error();
  if (auto done = put_in_force(*config, std::move(accounts)); !done) return done.error();
  folder_.publish_except(config->system_except);
  reconciler_->set_period(config->reconcile);
  core::Unapplied left = unapplied(config_, *config);
  for (const std::string& one : left) spdlog::warn("{}", one);
  return left;
}

Result<void> Daemon::put_in_force(host::Config config, host::Accounts accounts) {
  if (auto reloaded = quotas_->reload_now(config); !reloaded) return reloaded.error();
  administrators_.set_group(config.admin_gid);
  administrators_.set_reader(config.accounts.uid);
  loop_->judge_watchers();
  if (auto opened = folder_.open_metrics(metrics_gid(config)); !opened)
    spdlog::error("the group of metrics.sock stays as it was: {}", opened.error().message);
  follow_accounts(config, std::move(accounts));
  return {};
}

void Daemon::follow_accounts(const host::Config& config, host::Accounts accounts) {
  for (const host::Account& account : accounts.missing) spdlog::warn("{}", host::in_words_missing(account));
  known_accounts_.put_in_force(accounts);
  accounts_ = std::move(accounts);
  in_force_ = config;
}

void Daemon::look_again() {
  subordinates_.read(SubordinateIds::Again::kMissing);
  host::look_up_reader(in_force_);
  if (administrators_.set_reader(in_force_.accounts.uid)) loop_->judge_watchers();
  host::Config config = in_force_;
  host::Accounts accounts = host::look_up(config, in_force_);
  if (accounts == accounts_) return;
  for (const host::Account& account : accounts.found) {
    if (std::ranges::find(accounts_.found, account) == accounts_.found.end())
      spdlog::info("{}: this machine has {} now, number {}", account.key, account.words, *account.number);
  }
  if (auto done = put_in_force(std::move(config), accounts); !done) {
    spdlog::error("accounts that have changed are not in force: {}", done.error().message);
    accounts_ = std::move(accounts);
  }
}

}  // namespace gpumem
