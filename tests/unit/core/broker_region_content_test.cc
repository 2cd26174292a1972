#include <gmock/gmock.h>

#include "tests/unit/core/machine.h"

// Regions of the same bytes: who finds one by its content, and what becomes of memory with two names.

namespace gpumem::core {
namespace {

using std::chrono::seconds;

// The tenants lab, with ann and bob.
Policy content_policy() {
  Policy policy;
  policy.devices = {device("GPU-0", mebibytes(64)), device("GPU-1", mebibytes(64))};
  policy.tenants = {parent("lab", {{mebibytes(16), mebibytes(64)}, {{}, mebibytes(64)}}),
                    user("ann", 1, {{{}, mebibytes(64)}, {{}, mebibytes(64)}}, "lab"),
                    user("bob", 2, {{mebibytes(16), mebibytes(64)}, {{}, mebibytes(64)}}, "lab")};
  return policy;
}

class BrokerRegionContent : public testing::Test {
 protected:
  BrokerRegionContent() {
    publisher = machine.connect(2);
    mate = machine.connect(2);
    ann = machine.connect(1);
    slice = machine.slice(publisher);
    grant = machine.get(publisher, slice, mebibytes(8));
    hash.fill('h');
  }
  RegionTerms terms(const std::string& name = "weights", Sharing sharing = Sharing::kPublic) const {
    RegionTerms terms;
    terms.name = name;
    terms.sharing = sharing;
    terms.layout = Bytes{100};
    terms.digest.fill('d');
    terms.content = hash;
    return terms;
  }
  RegionContent content() const {
    RegionContent content{0, mebibytes(8), Bytes{100}, {}, hash};
    content.digest.fill('d');
    return content;
  }
  RegionId publish(const RegionTerms& terms) {
    const auto published =
        machine.broker.publish(publisher, slice, Machine::leases_of(grant), terms, machine.now);
    EXPECT_TRUE(published) << published.error().message;
    return published ? *published : RegionId{};
  }
  Result<MappedRegion> find(SessionId session, const RegionContent& what) {
    return machine.broker.map_content(session, what, machine.now);
  }
  Code find_fails(SessionId session, const RegionContent& what) {
    const auto found = find(session, what);
    EXPECT_FALSE(found);
    return found ? Code::kInternal : found.error().code;
  }
  /// The process maps what it has found.
  MappedRegion use(SessionId session) {
    auto mapped = find(session, content());
    EXPECT_TRUE(mapped) << mapped.error().message;
    for (const auto& [lease, extent] : mapped->imported.leases) {
      machine.driver.hold(extent.id);
      machine.held[session].push_back(extent.id);
    }
    return *mapped;
  }
  Result<RegionId> publish_alias(SessionId session, RegionId of, const RegionTerms& terms) {
    auto published = machine.broker.publish_alias(session, of, terms, machine.now);
    machine.collect();
    return published;
  }
  Code alias_fails(SessionId session, RegionId of, const RegionTerms& terms) {
    const auto published = publish_alias(session, of, terms);
    EXPECT_FALSE(published);
    return published ? Code::kInternal : published.error().code;
  }
  bool can_map(SessionId session, const std::string& name) {
    const auto mapped = machine.broker.map_region(session, "bob", name, Regions::kNewest, machine.now);
    return mapped && machine.broker.release_import(session, mapped->imported.id, machine.now);
  }

  Machine machine{content_policy()};
  SessionId publisher, mate, ann;
  SliceId slice;
  Grant grant;
  ContentHash hash{};
};

TEST_F(BrokerRegionContent, IsFoundByAllThatIsSaidOfIt) {
  const RegionId version = publish(terms());
  RegionContent other = content();
  other.hash[31] = 'x';
  EXPECT_EQ(find_fails(mate, other), Code::kNotFound);
  other = content();
  other.bytes = mebibytes(7);
  EXPECT_EQ(find_fails(mate, other), Code::kNotFound);
  other = content();
  other.digest[0] = 'x';
  EXPECT_EQ(find_fails(mate, other), Code::kNotFound);
  other = content();
  other.layout = Bytes{99};
  EXPECT_EQ(find_fails(mate, other), Code::kNotFound);
  other = content();
  other.device = 1;
  EXPECT_EQ(find_fails(mate, other), Code::kNotFound);
  const MappedRegion found = use(mate);
  EXPECT_EQ(found.version, version);
  EXPECT_EQ(found.imported.bytes, mebibytes(8));
}

TEST_F(BrokerRegionContent, OfAnotherTenantIsAsIfItWereNotThere) {
  const std::string unknown = find(ann, content()).error().message;
  publish(terms("weights", Sharing::kPublic));
  EXPECT_EQ(find_fails(ann, content()), Code::kNotFound) << "though it may map it by its name";
  EXPECT_EQ(find(ann, content()).error().message, unknown);
}

TEST_F(BrokerRegionContent, IsNotFoundWithoutAHashOrAfterItsEnd) {
  RegionTerms plain = terms();
  plain.content = {};
  publish(plain);
  EXPECT_EQ(find_fails(mate, content()), Code::kNotFound);
  ASSERT_TRUE(machine.broker.remove_region(publisher, plain.name, 0, machine.now));
  RegionTerms brief = terms("brief");
  brief.expires = machine.now + seconds(1);
  publish(brief);
  const RegionId newest = publish(terms("newest"));
  EXPECT_EQ(use(mate).version, newest) << "of several the newest: who lied before has lied once";
  ASSERT_TRUE(machine.broker.remove_region(publisher, "newest", 0, machine.now));
  EXPECT_TRUE(find(mate, content()));
  machine.pass_in_steps(seconds(2));
  EXPECT_EQ(find_fails(mate, content()), Code::kNotFound);
}

TEST_F(BrokerRegionContent, IsOneCopyUnderTwoNamesThatIsChargedOnce) {
  const RegionId version = publish(terms());
  const MappedRegion found = use(mate);
  const auto alias = publish_alias(mate, found.version, terms("again"));
  ASSERT_TRUE(alias) << alias.error().message;
  EXPECT_GT(*alias, version);
  EXPECT_EQ(machine.charged("bob"), mebibytes(8));
  const auto mapped = machine.broker.map_region(ann, "bob", "again", Regions::kNewest, machine.now);
  ASSERT_TRUE(mapped);
  EXPECT_EQ(mapped->version, *alias);
  EXPECT_EQ(mapped->layout, Bytes{100});
  EXPECT_EQ(mapped->digest, content().digest);
  EXPECT_EQ(mapped->imported.leases.front().first, grant.leases.front().lease);
  EXPECT_EQ(use(mate).version, *alias) << "it is found by the content, too";
}

TEST_F(BrokerRegionContent, EndsUnderAnotherNameWithoutTheFirst) {
  publish(terms());
  ASSERT_TRUE(publish_alias(mate, use(mate).version, terms("again")));
  ASSERT_TRUE(publish_alias(mate, use(mate).version, terms("third")));
  ASSERT_TRUE(machine.broker.remove_region(publisher, "again", 0, machine.now));
  EXPECT_TRUE(can_map(ann, "weights"));
  EXPECT_TRUE(can_map(ann, "third"));
  EXPECT_EQ(machine.charged("bob"), mebibytes(8));
}

TEST_F(BrokerRegionContent, EndsUnderAllNamesWhereItsPublisherCanWriteItAgain) {
  publish(terms());
  const RegionId second = publish(terms("second"));
  ASSERT_TRUE(publish_alias(mate, use(mate).version, terms("again")));
  ASSERT_TRUE(machine.broker.remove_region(mate, "weights", 0, machine.now));
  EXPECT_TRUE(can_map(ann, "again")) << "its publisher has it published still";
  machine.restart(content_policy(), {grant});
  ASSERT_TRUE(machine.resume(publisher, {slice}, {grant}));
  EXPECT_TRUE(can_map(machine.connect(1), "again"));
  ASSERT_TRUE(machine.broker.remove_region(publisher, "second", second.value, machine.now));
  EXPECT_FALSE(can_map(machine.connect(1), "again"));
}

TEST_F(BrokerRegionContent, EndsUnderAllNamesWhenTheTimeOfTheFirstIsOver) {
  RegionTerms brief = terms();
  brief.expires = machine.now + seconds(1);
  publish(brief);
  RegionTerms kept = terms("again");
  kept.keep = true;
  ASSERT_TRUE(publish_alias(mate, use(mate).version, kept));
  machine.pass_in_steps(seconds(2));
  EXPECT_FALSE(can_map(ann, "again"));
}

TEST_F(BrokerRegionContent, GoesOnUnderItsSecondNameOnceItsPublisherHasGivenItBack) {
  publish(terms());
  ASSERT_TRUE(publish_alias(mate, use(mate).version, terms("again")));
  ASSERT_TRUE(machine.keep_but_give_back(publisher, slice, grant));
  ASSERT_TRUE(machine.broker.remove_region(publisher, "weights", 0, machine.now));
  EXPECT_FALSE(can_map(ann, "weights"));
  EXPECT_TRUE(can_map(ann, "again"));
  EXPECT_EQ(machine.charged("bob"), mebibytes(8)) << "the second has it now";
}

TEST_F(BrokerRegionContent, GoesOnUnderBothNamesWhenItsFirstPublisherDies) {
  publish(terms());
  ASSERT_TRUE(publish_alias(mate, use(mate).version, terms("again")));
  machine.die(publisher);
  EXPECT_TRUE(can_map(ann, "weights"));
  EXPECT_TRUE(can_map(ann, "again"));
  EXPECT_EQ(machine.charged("bob"), mebibytes(8)) << "the second has it now";
  machine.die(mate);
  EXPECT_FALSE(can_map(ann, "weights"));
  EXPECT_FALSE(can_map(ann, "again"));
  EXPECT_EQ(machine.charged("bob"), Bytes{});
}

TEST_F(BrokerRegionContent, GoesOnUnderBothNamesWhenItsSecondPublisherDies) {
  publish(terms());
  ASSERT_TRUE(publish_alias(mate, use(mate).version, terms("again")));
  machine.die(mate);
  EXPECT_TRUE(can_map(ann, "weights"));
  EXPECT_TRUE(can_map(ann, "again"));
}

TEST_F(BrokerRegionContent, IsKeptUnderTheNameThatIsKept) {
  publish(terms());
  RegionTerms kept = terms("again");
  kept.keep = true;
  const MappedRegion mapped = use(mate);
  ASSERT_TRUE(publish_alias(mate, mapped.version, kept));
  machine.die(mate);
  machine.die(publisher);
  EXPECT_FALSE(can_map(ann, "weights"));
  EXPECT_TRUE(can_map(ann, "again"));
  EXPECT_EQ(machine.charged("bob"), mebibytes(8));
  ASSERT_TRUE(machine.broker.remove_region_of("bob", "again", 0, machine.now));
  machine.collect();
  machine.run_jobs();
  EXPECT_EQ(machine.charged("bob"), Bytes{});
}

TEST_F(BrokerRegionContent, OfAKeptOneThatNobodyHasIsUsedAgain) {
  RegionTerms kept = terms();
  kept.keep = true;
  publish(kept);
  machine.die(publisher);
  ASSERT_TRUE(publish_alias(mate, use(mate).version, terms("again")));
  EXPECT_TRUE(can_map(ann, "again"));
  machine.die(mate);
  EXPECT_FALSE(can_map(ann, "again"));
  EXPECT_TRUE(can_map(ann, "weights"));
  EXPECT_EQ(machine.charged("bob"), mebibytes(8));
}

TEST_F(BrokerRegionContent, IsNamedAgainByThoseWhoHaveIt) {
  const RegionId version = publish(terms());
  EXPECT_EQ(alias_fails(mate, version, terms("again")), Code::kFailedPrecondition) << "not mapped";
  EXPECT_TRUE(publish_alias(publisher, version, terms("again"))) << "in its slice";
  ASSERT_TRUE(machine.broker.map_region(ann, "bob", "weights", Regions::kNewest, machine.now));
  EXPECT_EQ(alias_fails(ann, version, terms("again")), Code::kNotFound) << "another tenant's";
  EXPECT_EQ(alias_fails(mate, RegionId{99}, terms("again")), Code::kNotFound);
  use(mate);
  ASSERT_TRUE(machine.broker.remove_region(publisher, "weights", version.value, machine.now));
  EXPECT_EQ(alias_fails(mate, version, terms("third")), Code::kNotFound) << "it has ended meanwhile";
}

TEST_F(BrokerRegionContent, IsSharedUnderItsSecondNameWithNobodyElse) {
  const RegionId mine = publish(terms("weights", Sharing::kPrivate));
  EXPECT_EQ(alias_fails(publisher, mine, terms("open", Sharing::kPublic)), Code::kFailedPrecondition);
  EXPECT_EQ(alias_fails(publisher, mine, terms("open", Sharing::kGroup)), Code::kFailedPrecondition);
  EXPECT_TRUE(publish_alias(publisher, mine, terms("again", Sharing::kPrivate)));
  const RegionId group = publish(terms("group", Sharing::kGroup));
  EXPECT_TRUE(publish_alias(publisher, group, terms("again", Sharing::kGroup)));
  EXPECT_TRUE(publish_alias(publisher, group, terms("again", Sharing::kPrivate)));
  EXPECT_EQ(alias_fails(publisher, group, terms("open", Sharing::kPublic)), Code::kFailedPrecondition);
  RegionTerms named = terms("named", Sharing::kNamed);
  named.readers = {"ann"};
  const RegionId for_ann = publish(named);
  EXPECT_TRUE(publish_alias(publisher, for_ann, named));
  named.readers = {"lab"};
  EXPECT_EQ(alias_fails(publisher, for_ann, named), Code::kFailedPrecondition);
  EXPECT_TRUE(publish_alias(publisher, publish(terms()), named)) << "everybody may map it";
}

TEST_F(BrokerRegionContent, DoesNotChange) {
  publish(terms());
  const MapTerms as_writer{.owner = {}, .name = "weights", .version = 0, .how = MapAs::kWriter};
  EXPECT_EQ(machine.broker.map_region(mate, as_writer, machine.now).error().code, Code::kFailedPrecondition);
}

TEST_F(BrokerRegionContent, UnderASecondNameEndsAWaitForThat) {
  machine.broker.map_or_wait(RequestId{77}, ann,
                             {.owner = "bob", .name = "again", .version = 0, .how = MapAs::kReader},
                             seconds(9), machine.now);
  machine.collect();
  EXPECT_FALSE(machine.maps.contains(RequestId{77}));
  publish(terms());
  ASSERT_TRUE(publish_alias(mate, use(mate).version, terms("again")));
  ASSERT_TRUE(machine.maps.contains(RequestId{77}));
  EXPECT_TRUE(machine.maps.at(RequestId{77}).has_value());
}

TEST_F(BrokerRegionContent, IsFoundAfterARestart) {
  const RegionId version = publish(terms());
  const auto alias = publish_alias(publisher, version, terms("again"));
  ASSERT_TRUE(alias);
  machine.restart(content_policy(), {grant});
  ASSERT_TRUE(machine.resume(publisher, {slice}, {grant}));
  const SessionId other = machine.connect(2);
  const auto found = find(other, content());
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->version, *alias);
  EXPECT_TRUE(publish_alias(other, version, terms("third")));
  EXPECT_EQ(machine.charged("bob"), mebibytes(8));
}

TEST_F(BrokerRegionContent, IsListedWithItsMemory) {
  const RegionId version = publish(terms());
  ASSERT_TRUE(publish_alias(publisher, version, terms("again")));
  const RegionPage page = machine.broker.regions({"bob"}, "", machine.now);
  ASSERT_EQ(page.regions.size(), 2U);
  EXPECT_EQ(page.regions[0].region.leases, page.regions[1].region.leases);
  EXPECT_EQ(page.regions[0].region.offset, page.regions[1].region.offset);
  EXPECT_TRUE(page.regions[1].region.is_sealed());
}

}  // namespace
}  // namespace gpumem::core
