#include <array>
#include <charconv>

#include "base/printable.h"
#include "client/cli/views/text.h"
#include "client/cli/views/views.h"

namespace gpumem::cli {
namespace {

constexpr double kGiBHour = double{1 << 30} * 3600;

double charged(const v1::Account& account) {
  return account.lent() + account.returning() + account.reserved() + account.outside();
}

std::string fixed(double value, int decimals) {
  std::array<char, 512> text{};  // of the largest, too
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, decimals);
  return {text.data(), end.ptr};
}

std::string gib_hours(double byte_seconds) { return fixed(byte_seconds / kGiBHour, 2); }

std::string name_of(const v1::Account& account) {
  return account.tenant().empty() ? "(all)" : tenant_text(account.tenant());
}

}  // namespace

std::string accounts_text(const v1::ListAccountsResponse& accounts, WallTime now, const Layout& layout) {
  if (accounts.accounts().empty()) return "no accounts\n";
  constexpr auto kRight = Table::Align::kRight;
  Table table({{.title = "TENANT", .least = 20},
               {.title = "DEVICE"},
               {.title = "GIB-HOURS", .align = kRight},
               {.title = "UNUSED", .align = kRight, .usual = "0.00"},
               {.title = "WAITED FOR", .align = kRight, .usual = "0.00"},
               {.title = "FOR", .align = kRight}});
  for (const v1::Account& account : accounts.accounts())
    table.add({name_of(account), layout.device(account.device()), gib_hours(charged(account)),
               gib_hours(account.kept()), gib_hours(account.waiting()), age_text(account.since(), now)});
  return table.text(layout);
}

Json accounts_json(const v1::ListAccountsResponse& accounts) {
  Json list = Json::array();
  for (const v1::Account& account : accounts.accounts()) {
    list.push_back({{"tenant", account.tenant().empty() ? Json() : Json(account.tenant())},
                    {"device", account.device()},
                    {"since", account.since()},
                    {"lent", account.lent()},
                    {"returning", account.returning()},
                    {"reserved", account.reserved()},
                    {"outside", account.outside()},
                    {"kept", account.kept()},
                    {"waiting", account.waiting()}});
  }
  return {{"accounts", std::move(list)}};
}

std::string accounts_csv(const v1::ListAccountsResponse& accounts) {
  std::string csv = "tenant,device,since,lent,returning,reserved,outside,kept,waiting\n";
  for (const v1::Account& account : accounts.accounts()) {
    csv += csv_text(printable(account.tenant())) + ',' + csv_text(printable(account.device())) + ',' +
           csv_text(printable(account.since()));
    for (const double amount : {account.lent(), account.returning(), account.reserved(), account.outside(),
                                account.kept(), account.waiting()})
      csv += ',' + fixed(amount, 0);
    csv += '\n';
  }
  return csv;
}

}  // namespace gpumem::cli
