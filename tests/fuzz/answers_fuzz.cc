// Any answer of a broker, well made or not, as the `gpumem` command shows it: text that is safe for a
// terminal, and JSON.
#include <algorithm>
#include <chrono>

#include "base/text/time_format.h"
#include "client/cli/explain/explain.h"
#include "client/cli/views/views.h"
#include "tests/fuzz/messages.h"
#include "tests/fuzz/require.h"

namespace gpumem::fuzz {
namespace {

using cli::Json, cli::WallTime;

constexpr std::string_view kTexts[] = {"",
                                       "a",
                                       "b",
                                       "c",
                                       "GPU-01010101-0101-0101-0101-010101010101",
                                       "GPU-",
                                       "2030-01-02T12:00:00Z",
                                       "2030-01-02T12:00:00.123456Z",
                                       "0000-00-00T00:00:00Z",
                                       "\x1b[2J",
                                       "line\nline",
                                       "\xff\xfe",
                                       "granted",
                                       "pressure"};

// 2030-01-02T12:00:00Z
constexpr WallTime kNow{std::chrono::seconds(1'893'585'600)};

// Messages that are none are not worth a line each.
[[maybe_unused]] auto* const kQuiet = google::protobuf::SetLogHandler(nullptr);

void require_shown(const std::string& text) {
  require(!text.empty() && text.back() == '\n', "what is shown ends with its line");
  const bool plain = std::ranges::all_of(
      text, [](unsigned char byte) { return byte == '\n' || (byte >= 0x20 && byte != 0x7f); });
  require(plain, "nothing that is shown commands the terminal");
}

void require_json(const std::string& text) {
  const Json read = Json::parse(text, nullptr, false);
  require(!read.is_discarded(), "what is printed as JSON is JSON");
}

/// A message that is filled, or read from any bytes.
template <class Message>
Message some(Input& input) {
  Message message;
  if (input.one_in(4)) {
    const std::string_view bytes = input.text(~std::size_t{0});
    if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) message.Clear();
  } else {
    fill(message, input, kTexts);
  }
  return message;
}

void show_event(Input& input) {
  const auto event = some<v1::Event>(input);
  const std::string line = cli::event_line(event);
  require_shown(line);
  require(std::ranges::count(line, '\n') == 1, "an event is one line");
  require_json(cli::event_json_line(event));
}

void show_quotas(Input& input) {
  if (input.one_in(2)) {
    const auto change = some<v1::SetQuotaResponse>(input);
    require_shown(cli::quota_change_text(change));
    return require_json(cli::json_text(cli::quota_change_json(change)));
  }
  const auto quotas = some<v1::ListQuotasResponse>(input);
  require_shown(cli::quotas_text(quotas));
  require_json(cli::json_text(cli::quotas_json(quotas)));
}

void require_sum(const cli::Line& line) {
  std::uint64_t sum = 0;
  for (const cli::Line& part : line.parts) {
    sum += static_cast<std::uint64_t>(part.bytes.value_or(0));
    require_sum(part);
  }
  const bool is_sum = !line.bytes || line.parts.empty() || static_cast<std::uint64_t>(*line.bytes) == sum;
  require(is_sum, "a line is the sum of its parts");
}

void show_account(Input& input, const v1::Reconciliation& look) {
  const auto some_ledger = [&] {
    return cli::Ledger{some<v1::GetStatusResponse>(input), some<v1::ListTenantsResponse>(input),
                       some<v1::ListSessionsResponse>(input)};
  };
  const cli::Ledger before = some_ledger(), after = some_ledger();
  const cli::Account account = cli::account_of(before, look, after);
  // Of a device, the driver's figures need not add up.
  for (const cli::Line& part : account.sum.part("used").parts) require_sum(part);
  require_shown(cli::account_text(account, after.status, 3, kNow, {}));
  require_json(cli::json_text(cli::account_json(account)));
}

void show_times(Input& input) {
  const std::string text(input.text(40));
  if (const auto time = parse_rfc3339(text)) {
    const auto again = parse_rfc3339(to_rfc3339(*time, Precision::kMicroseconds));
    require(again && *again == std::chrono::floor<std::chrono::microseconds>(*time),
            "a time is written as it was read");
  }
  (void)cli::age_text(text, kNow);
  const auto since = cli::instant_of(text, kNow);
  require(!since || parse_rfc3339(to_rfc3339(*since, Precision::kMicroseconds)).has_value(),
          "what the broker is asked for is a time");
}

void run(Input& input) {
  switch (input.below(9)) {
    case 0: {
      const auto status = some<v1::GetStatusResponse>(input);
      require_shown(cli::status_text(status, kNow));
      return require_json(cli::json_text(cli::status_json(status, kNow)));
    }
    case 1: {
      const auto sessions = some<v1::ListSessionsResponse>(input);
      require_shown(cli::sessions_text(sessions, kNow));
      return require_json(cli::json_text(cli::sessions_json(sessions)));
    }
    case 2: {
      const auto accounts = some<v1::ListAccountsResponse>(input);
      require_shown(cli::accounts_text(accounts, kNow));
      require_json(cli::json_text(cli::accounts_json(accounts)));
      require_shown(cli::accounts_csv(accounts));
      const auto tenants = some<v1::ListTenantsResponse>(input);
      require_shown(cli::tenants_text(tenants));
      require_shown(cli::tenants_text(tenants, {.is_terminal = true, .columns = 80}));
      return require_json(cli::json_text(cli::tenants_json(tenants)));
    }
    case 3: {
      const auto reconciled = some<v1::ReconcileResponse>(input);
      require_shown(cli::reconcile_text(reconciled, kNow));
      for (const v1::Reconciliation& one : reconciled.devices()) show_account(input, one);
      return require_json(cli::json_text(cli::reconcile_json(reconciled)));
    }
    case 4: {
      const auto explained = some<v1::ExplainResponse>(input);
      require_shown(cli::why_text(explained));
      return require_json(cli::json_text(cli::why_json(explained)));
    }
    case 5: return show_event(input);
    case 6: return show_quotas(input);
    case 7: {
      const auto regions = some<v1::ListRegionsResponse>(input);
      require_shown(cli::regions_text(regions, kNow));
      return require_json(cli::json_text(cli::regions_json(regions)));
    }
    default: show_times(input);
  }
}

}  // namespace
}  // namespace gpumem::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  gpumem::fuzz::Input input({reinterpret_cast<const char*>(data), size});
  gpumem::fuzz::run(input);
  return 0;
}
