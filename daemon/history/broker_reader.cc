#include "daemon/history/broker_reader.h"

#include <cstdlib>

#include "base/system/files.h"
#include "base/text/time_format.h"
#include "proto/channel.h"

namespace gpumem::history {
namespace {

constexpr std::chrono::seconds kPatience{5};
// Between two readings of both clocks that differ by more, the clock was set.
constexpr std::chrono::milliseconds kSlack{500};

std::chrono::nanoseconds steady_now() { return std::chrono::steady_clock::now().time_since_epoch(); }
std::chrono::nanoseconds wall_now() { return std::chrono::system_clock::now().time_since_epoch(); }

// All pages as one.
template <class Request, class Response>
Result<Response> pages(v1::Monitor::Stub& stub,
                       grpc::Status (v1::Monitor::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                 Response*)) {
  Request request;
  Response all;
  do {
    grpc::ClientContext context;
    set_timeout(context, kPatience);
    Response page;
    const auto status = (stub.*method)(&context, request, &page);
    const std::string& words = status.error_message();
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE)
      return Error{Code::kUnavailable, "the broker does not serve (systemctl status gpumemd): " + words};
    if (!status.ok()) return Error{Code::kUnavailable, words};
    request.set_page_token(page.next_page_token());
    all.MergeFrom(page);
  } while (!request.page_token().empty());
  return all;
}

// `shift`  what the clock is ahead of the time since the machine started.
Account account_of(const v1::Account& account, std::chrono::nanoseconds shift) {
  Account one{.key = {account.tenant(), account.device()}};
  if (account.has_uid()) one.uid = account.uid();
  if (const auto since = parse_rfc3339(account.since())) one.began = since->time_since_epoch() - shift;
  one.amounts = {account.lent(),    account.returning(), account.reserved(),
                 account.outside(), account.kept(),      account.waiting()};
  return one;
}

Rights rights_of(const v1::ListAccountsResponse& accounts) {
  Rights rights;
  if (accounts.has_admin_group()) rights.admin_group = accounts.admin_group();
  for (const v1::TenantMember& one : accounts.members()) {
    Member& member = rights.members.emplace_back();
    member.tenant = one.tenant();
    if (one.has_uid()) member.uid = one.uid();
    if (one.has_gid()) member.gid = one.gid();
  }
  return rights;
}

}  // namespace

Sample now_of_machine() {
  static const std::string boot = read_text("/proc/sys/kernel/random/boot_id").value_or("");
  return {.boot = boot,
          .steady = steady_now(),
          .time = std::chrono::duration_cast<std::chrono::seconds>(wall_now()).count()};
}

BrokerReader::BrokerReader(const std::filesystem::path& socket)
    : stub_(v1::Monitor::NewStub(broker_channel(socket))), events_(*stub_) {}

Result<v1::ListAccountsResponse> BrokerReader::accounts() {
  auto accounts = pages(*stub_, &v1::Monitor::Stub::ListAccounts);
  if (accounts && !accounts->all())
    return Error{Code::kPermissionDenied,
                 "the broker does not let this user read all accounts: name it in gpumemd.toml, reader in "
                 "[accounts]; the broker looks for a new user each minute"};
  return accounts;
}

Result<Sample> BrokerReader::look() {
  const auto shift = wall_now() - steady_now();
  auto accounts = this->accounts();
  if (!accounts) return accounts.error();
  Sample sample = now_of_machine();
  if (std::chrono::abs(wall_now() - steady_now() - shift) > kSlack)
    return Error{Code::kUnavailable, "the clock was set"};
  Rights rights = rights_of(*accounts);
  sample.members = rights.members;
  {
    const MutexLock lock(mutex_);
    rights_ = std::move(rights);
  }
  for (const v1::Account& one : accounts->accounts()) sample.accounts.push_back(account_of(one, shift));
  if (auto read = read_charged(sample); !read) return read.error();
  return sample;
}

// All of a device is what tenants without a parent are charged.
Result<void> BrokerReader::read_charged(Sample& sample) {
  const auto tenants = pages(*stub_, &v1::Monitor::Stub::ListTenants);
  if (!tenants) return tenants.error();
  for (const v1::TenantUsage& one : tenants->tenants()) {
    sample.charged[{one.tenant(), one.device()}] = one.charged();
    if (one.parent().empty()) sample.charged[{"", one.device()}] += one.charged();
  }
  return {};
}

}  // namespace gpumem::history
