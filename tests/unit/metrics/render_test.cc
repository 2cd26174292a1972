// The text: exactly as OpenMetrics 1.0 has it, and with the names that docs/metrics.md promises.
#include "daemon/metrics/render.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <sstream>

#include "tests/support/temporary_folder.h"
#include "tests/unit/core/policies.h"

namespace gpumem::metrics {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

Snapshot::Device gpu(const std::string& uuid) {
  Snapshot::Device device;
  device.view.policy = core::device(uuid, mebibytes(64));
  device.view.policy.total = mebibytes(72);
  device.view.free = mebibytes(40);
  device.view.charges[core::Charge::kActive] = mebibytes(20);
  device.view.charges[core::Charge::kQuarantined] = mebibytes(4);
  device.view.outside = mebibytes(1);
  device.view.warm = mebibytes(36);
  device.view.missing = mebibytes(4);
  device.view.contexts = mebibytes(1);
  device.view.created = mebibytes(60);
  device.view.guaranteed = mebibytes(16);
  device.view.waiting = 2;
  device.view.asked_back = mebibytes(6);
  return device;
}

/// Something of everything that can be shown.
Snapshot everything() {
  Snapshot snapshot;
  snapshot.info = {"0.1.0", "CUDA 13.0, driver 580", core::WallTime(milliseconds(1'700'000'000'250))};
  snapshot.now = core::TimePoint(seconds(1000));
  snapshot.wall = core::WallTime(seconds(1'700'001'000));
  snapshot.sessions = 3;
  snapshot.events[static_cast<std::size_t>(core::Event::Kind::kPastBroker)] = 7;
  snapshot.refusals[static_cast<std::size_t>(core::Bound::kMetricsConnections)] = 5;
  snapshot.devices = {gpu("GPU-0"), gpu("GPU-1")};
  Snapshot::Device& first = snapshot.devices[0];
  first.view.policy.reclaim.escalation = core::Escalation::kEndSession;
  first.view.claim_asked = snapshot.now - milliseconds(1500);
  first.reconciliation = {snapshot.now - seconds(2),
                          mebibytes(70),
                          mebibytes(60),
                          {},
                          mebibytes(1),
                          mebibytes(2),
                          mebibytes(3),
                          mebibytes(4),
                          {},
                          {}};
  first.processes_past_broker = 1;
  snapshot.devices[1].reconciliation.problem = "no library";
  snapshot.tenants = {{"ann", {"lab", 2, 3, 4}}, {"lab", {"", 2, 3, 4}}, {"uid:other", {"", 1, 0, 0}}};
  Snapshot::Usage& ann = snapshot.usage[{"ann", 0}];
  ann.quota = core::Quota{mebibytes(16), mebibytes(64), 200, 7};
  ann.charges[core::Charge::kActive] = mebibytes(20);
  ann.outside = mebibytes(1);
  ann.burst = mebibytes(5);
  ann.debt = mebibytes(2);
  ann.in_use = mebibytes(9);
  ann.waiting = 2;
  ann.imported = mebibytes(11);
  ann.regions = {3, mebibytes(12), mebibytes(8), 2};
  ann.account.emplace()[static_cast<std::size_t>(core::Use::kLent)].add(mebibytes(20), milliseconds(1500));
  first.account[static_cast<std::size_t>(core::Use::kKept)].add(mebibytes(16), seconds(2));
  snapshot.usage[{"uid:other", 1}].charges[core::Charge::kQuarantined] = mebibytes(4);
  Counters& counters = snapshot.counters[{"ann", 0}];
  counters.granted = mebibytes(100);
  counters.returned = mebibytes(80);
  counters.freed = mebibytes(76);
  counters.quarantined = mebibytes(4);
  counters.peak = mebibytes(50);
  counters.grant_wait.observe(milliseconds(0));
  counters.grant_wait.observe(milliseconds(1500));
  counters.denial_wait.observe(seconds(10));
  counters.reclaim.observe(milliseconds(200));
  return snapshot;
}

TEST(Render, WritesExactlyThis) { EXPECT_EQ(render(everything()), test::read_file(GPUMEM_TEST_GOLDEN)); }

TEST(Render, EscapesLabels) {
  Snapshot snapshot;
  snapshot.tenants["a\\b\"c\nd"] = {};
  EXPECT_THAT(render(snapshot), HasSubstr(R"(gpumem_tenant_sessions{tenant="a\\b\"c\nd"} 0)"));
}

TEST(Render, ShowsTheDriversTextAsAscii) {
  Snapshot snapshot;
  snapshot.info.driver = "dri\xff\nver";
  EXPECT_THAT(render(snapshot), HasSubstr("driver=\"dri??ver\""));
}

/// A row of the tables of docs/metrics.md, or what the text has of a metric.
struct Row {
  std::string type, unit;
  std::set<std::string> labels;
  bool operator==(const Row&) const = default;
};
using Rows = std::map<std::string, Row>;

std::set<std::string> words_of(const std::string& text) {
  std::set<std::string> words;
  const std::regex word("[a-z_]+");
  for (std::sregex_iterator it(text.begin(), text.end(), word), end; it != end; ++it) words.insert(it->str());
  return words;
}

Rows documented() {
  Rows rows;
  std::istringstream lines(test::read_file(GPUMEM_TEST_DOCUMENT));
  const std::regex row(R"(\| `(gpumem_[a-z_]+)` \| ([a-z]+) \| ([a-z_]*) ?\| ([^|]*) ?\| .+ \|)");
  std::smatch found;
  for (std::string line; std::getline(lines, line);) {
    if (!std::regex_match(line, found, row)) continue;
    EXPECT_FALSE(rows.contains(found[1])) << found[1] << " stands there twice";
    rows[found[1]] = {found[2], found[3], words_of(found[4])};
  }
  return rows;
}

// Of samples of a metric, which follow its TYPE and UNIT.
Rows written(const std::string& text) {
  Rows rows;
  std::string name;
  std::istringstream lines(text);
  const std::regex type("# TYPE ([a-z_]+) ([a-z]+)"), unit("# UNIT ([a-z_]+) ([a-z_]+)");
  const std::regex label("([a-z_]+)=\"");
  std::smatch found;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_match(line, found, type)) rows[name = found[1]].type = found[2];
    if (std::regex_match(line, found, unit)) rows.at(found[1]).unit = found[2];
    if (line.starts_with("#")) continue;
    EXPECT_TRUE(line.starts_with(name)) << line;
    for (std::sregex_iterator it(line.begin(), line.end(), label), end; it != end; ++it) {
      if ((*it)[1] != "le") rows[name].labels.insert((*it)[1]);
    }
  }
  return rows;
}

TEST(Render, WritesTheMetricsThatAreDocumentedAndNoOthers) {
  const Rows documents = documented(), writes = written(render(everything()));
  EXPECT_GT(documents.size(), 40u);
  for (const auto& [name, row] : documents) {
    ASSERT_TRUE(writes.contains(name)) << name << " is documented, and not written";
    EXPECT_EQ(writes.at(name).type, row.type) << name;
    EXPECT_EQ(writes.at(name).unit, row.unit) << name;
    EXPECT_EQ(writes.at(name).labels, row.labels) << name;
  }
  for (const auto& [name, row] : writes)
    EXPECT_TRUE(documents.contains(name)) << name << " is not documented";
}

TEST(Render, NamesEveryValueOfALabelThatIsDocumented) {
  const std::string document = test::read_file(GPUMEM_TEST_DOCUMENT), text = render(everything());
  const std::regex value("(kind|bound)=\"([^\"]+)\"");
  for (std::sregex_iterator it(text.begin(), text.end(), value), end; it != end; ++it)
    EXPECT_THAT(document, HasSubstr("`" + (*it)[2].str() + "`"));
}

}  // namespace
}  // namespace gpumem::metrics
