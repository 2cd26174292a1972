#include <gmock/gmock.h>

#include "tests/unit/core/machine.h"

// Who sees which regions, in pages, and what is told when regions come and go.

namespace gpumem::core {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;
using testing::SizeIs;

// The tenants lab, with ann and bob, and zoe, who belongs to nobody; users without a rule belong to lab, too.
Policy seen_policy() {
  Policy policy;
  policy.devices = {device("GPU-0", mebibytes(64))};
  policy.tenants = {parent("lab", {{{}, mebibytes(64)}}), user("ann", 1, {{{}, mebibytes(64)}}, "lab"),
                    user("bob", 2, {{{}, mebibytes(64)}}, "lab"), user("zoe", 3, {{{}, mebibytes(64)}})};
  policy.others = std::vector<Quota>{{{}, mebibytes(64)}};
  policy.others_parent = "lab";
  return policy;
}

class RegionsSeen : public testing::Test {
 protected:
  RegionsSeen() : machine(seen_policy()) {
    bob = machine.connect(2);
    slice = machine.slice(bob);
    grant = machine.get(bob, slice, mebibytes(8));
  }
  RegionId publish(const std::string& name, Sharing sharing = Sharing::kPrivate,
                   std::vector<std::string> readers = {}, Duration life = {}) {
    Publish terms;
    terms.name = name;
    terms.sharing = sharing;
    terms.readers = std::move(readers);
    terms.life = life;
    return machine.broker.publish(bob, of_leases(terms, slice, Machine::leases_of(grant)), machine.now)
        .value();
  }
  ImportId map(SessionId session, const std::string& name) {
    const auto mapped = machine.broker.map_region(session, {.owner = "bob", .name = name}, machine.now);
    EXPECT_TRUE(mapped);
    machine.collect();
    return mapped ? mapped->imported.id : ImportId{};
  }
  RegionPage page(const RegionViewer& viewer, const std::string& owner = {}, RegionId after = {},
                  std::size_t most = Broker::kAll) const {
    return machine.broker.regions(viewer, owner, machine.now, after, most);
  }
  std::vector<std::string> seen(const std::string& tenant, const std::string& owner = {}) const {
    std::vector<std::string> names;
    for (const RegionView& one : page({tenant}, owner).regions) names.push_back(one.region.name);
    return names;
  }
  std::vector<Event> events(Event::Kind kind) {
    machine.collect();
    return machine.events_of(kind);
  }

  const RegionViewer admin{"", true};
  Machine machine;
  SessionId bob;
  SliceId slice;
  Grant grant;
};

TEST_F(RegionsSeen, AreThoseThatMayBeMappedAndOnesOwn) {
  publish("own");
  publish("group", Sharing::kGroup);
  publish("all", Sharing::kPublic);
  publish("zoes", Sharing::kNamed, {"zoe", "nobody"});
  publish("labs", Sharing::kNamed, {"lab"});
  EXPECT_THAT(seen("bob"), ElementsAre("own", "group", "all", "zoes", "labs"));
  EXPECT_THAT(seen("ann"), ElementsAre("group", "all", "labs"));
  EXPECT_THAT(seen("zoe"), ElementsAre("all", "zoes"));
  EXPECT_THAT(seen("uid:77"), ElementsAre("group", "all", "labs")) << "before it has a session";
  EXPECT_THAT(seen(""), IsEmpty()) << "of no tenant";
  EXPECT_THAT(page(admin).regions, SizeIs(5));
}

TEST_F(RegionsSeen, AreExactlyThoseThatTheTenantMapsByName) {
  publish("own");
  publish("group", Sharing::kGroup);
  publish("all", Sharing::kPublic);
  publish("zoes", Sharing::kNamed, {"zoe"});
  for (const std::uint32_t uid : {1u, 2u, 3u, 77u}) {
    const SessionId session = machine.connect(uid);
    std::vector<std::string> mapped;
    for (const char* name : {"own", "group", "all", "zoes"}) {
      if (machine.broker.map_region(session, {.owner = "bob", .name = name}, machine.now))
        mapped.push_back(name);
    }
    EXPECT_EQ(seen(machine.broker.tenant_name(session)), mapped) << uid;
  }
}

TEST_F(RegionsSeen, AreOfOneOwnerIfItIsNamed) {
  publish("own");
  publish("all", Sharing::kPublic);
  EXPECT_THAT(seen("bob", "bob"), ElementsAre("own", "all"));
  EXPECT_THAT(seen("zoe", "bob"), ElementsAre("all"));
  EXPECT_THAT(seen("zoe", "ann"), IsEmpty());
  EXPECT_THAT(seen("zoe", "nobody"), IsEmpty());
  EXPECT_THAT(page(admin, "bob").regions, SizeIs(2));
  EXPECT_THAT(page(admin, "nobody").regions, IsEmpty());
}

// A page that is short, or a next one that is empty, would tell of what is not seen.
TEST_F(RegionsSeen, LeaveNoGapWhereOthersAre) {
  std::vector<RegionId> open;
  for (int i = 0; i < 20; ++i) {
    publish("secret");
    open.push_back(publish("open", Sharing::kPublic));
    publish("secret");
  }
  std::vector<RegionId> found;
  RegionId after;
  do {
    const RegionPage one = page({"zoe"}, {}, after, 8);
    EXPECT_THAT(one.regions, SizeIs(open.size() - found.size() < 8 ? open.size() - found.size() : 8));
    for (const RegionView& view : one.regions) found.push_back(view.region.id);
    after = one.next;
  } while (after);
  EXPECT_EQ(found, open);
  EXPECT_FALSE(page({"zoe"}, {}, open.back(), 8).next);
}

TEST_F(RegionsSeen, TellTheOwnerWhoHasMappedThemAndOthersOfTheirOwn) {
  publish("weights", Sharing::kNamed, {"lab", "zoe"});
  const SessionId ann = machine.connect(1), zoe = machine.connect(3);
  map(ann, "weights");
  map(ann, "weights");
  const ImportId zoes = map(zoe, "weights");
  using Mapping = RegionView::Mapping;
  const auto of = [](SessionId session, const char* tenant, std::size_t count) {
    return AllOf(Field(&Mapping::session, session), Field(&Mapping::tenant, tenant),
                 Field(&Mapping::count, count));
  };
  for (const RegionViewer& owner : {RegionViewer{"bob"}, admin}) {
    const RegionView view = page(owner).regions.at(0);
    EXPECT_THAT(view.mappings, ElementsAre(of(ann, "ann", 2), of(zoe, "zoe", 1)));
    EXPECT_THAT(view.region.readers, ElementsAre("lab", "zoe"));
    EXPECT_THAT(view.charged, ElementsAre(AllOf(Field(&RegionView::Charged::session, bob),
                                                Field(&RegionView::Charged::bytes, mebibytes(8)))));
  }
  const RegionView hers = page({"ann"}).regions.at(0);
  EXPECT_THAT(hers.mappings, ElementsAre(of(ann, "ann", 2)));
  EXPECT_THAT(hers.region.readers, IsEmpty());
  ASSERT_TRUE(machine.broker.release_import(zoe, {zoes}, machine.now));
  EXPECT_THAT(page(admin).regions.at(0).mappings, ElementsAre(of(ann, "ann", 2)));
}

TEST_F(RegionsSeen, AreMappedByThoseAloneThatHaveAllOfTheirMemory) {
  const Grant more = machine.get(bob, slice, mebibytes(8));
  publish("small", Sharing::kPublic);
  std::vector<LeaseId> both = Machine::leases_of(grant);
  std::ranges::copy(Machine::leases_of(more), std::back_inserter(both));
  Publish terms;
  terms.name = "large";
  terms.sharing = Sharing::kPublic;
  ASSERT_TRUE(machine.broker.publish(bob, of_leases(terms, slice, both), machine.now));
  map(machine.connect(3), "small");
  const auto regions = page(admin).regions;
  EXPECT_THAT(regions.at(0).mappings, SizeIs(1));
  EXPECT_THAT(regions.at(1).mappings, IsEmpty());
}

TEST_F(RegionsSeen, EndAtTheirTimeAndThatIsTold) {
  publish("brief", Sharing::kPublic, {}, seconds(5));
  publish("lasting", Sharing::kPublic);
  EXPECT_EQ(machine.broker.next_deadline(), machine.now + seconds(5));
  machine.now += seconds(5);
  EXPECT_THAT(seen("zoe"), ElementsAre("lasting")) << "before the timer";
  machine.pass(seconds(0));
  EXPECT_THAT(machine.broker.regions(admin, "", TimePoint{}).regions, SizeIs(1)) << "it is gone";
  const auto told = events(Event::Kind::kExpired);
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told[0].tenant, "bob");
  EXPECT_EQ(told[0].bytes, mebibytes(8));
  EXPECT_EQ(told[0].words, "'brief', version 1");
}

TEST_F(RegionsSeen, TellOfTheirLifeToWhomItConcerns) {
  publish("weights", Sharing::kPublic);
  const SessionId zoe = machine.connect(3);
  map(zoe, "weights");
  publish("other");
  ASSERT_TRUE(machine.broker.remove_region(bob, {"other"}, machine.now));
  ASSERT_TRUE(machine.give_back(bob, slice, grant));
  const auto published = events(Event::Kind::kPublished), mapped = events(Event::Kind::kMapped);
  ASSERT_THAT(published, SizeIs(2));
  EXPECT_EQ(published[0].tenant, "bob");
  EXPECT_EQ(published[0].session, bob);
  EXPECT_EQ(published[0].words, "'weights', version 1");
  ASSERT_THAT(mapped, SizeIs(1));
  EXPECT_EQ(mapped[0].tenant, "zoe") << "what she does concerns her";
  EXPECT_EQ(mapped[0].words, "'weights', version 1, of tenant 'bob'");
  ASSERT_THAT(events(Event::Kind::kRemoved), SizeIs(1));
  EXPECT_EQ(events(Event::Kind::kRemoved)[0].words, "'other', version 2");
  ASSERT_THAT(events(Event::Kind::kRegionLost), SizeIs(1));
  EXPECT_EQ(events(Event::Kind::kRegionLost)[0].tenant, "bob");
  EXPECT_EQ(events(Event::Kind::kRegionLost)[0].words, "'weights', version 1");
}

TEST_F(RegionsSeen, ATryThatFailsIsNotTold) {
  publish("own");
  EXPECT_FALSE(machine.broker.map_region(machine.connect(3), {.owner = "bob", .name = "own"}, machine.now));
  EXPECT_THAT(events(Event::Kind::kMapped), IsEmpty());
}

TEST_F(RegionsSeen, AreCountedForTheirTenantAlone) {
  publish("one");
  publish("two", Sharing::kPublic, {}, seconds(5));
  const auto total = [&](const std::string& tenant) {
    for (const TenantView& view : machine.broker.tenants())
      if (view.name == tenant) return view.regions;
    return RegionTotal{};
  };
  EXPECT_EQ(total("bob").count, 2u);
  EXPECT_EQ(total("bob").bytes, mebibytes(16));
  EXPECT_EQ(total("lab").count, 0u);
  machine.pass(seconds(5));
  EXPECT_EQ(total("bob").count, 1u);
  ASSERT_TRUE(machine.broker.remove_region(bob, {"one"}, machine.now));
  EXPECT_EQ(total("bob").bytes, Bytes{});
}

TEST_F(RegionsSeen, FollowTheirOwnerToAnotherTenant) {
  publish("own");
  Policy other = seen_policy();
  other.tenants[2].name = "rob";
  ASSERT_TRUE(machine.broker.apply(other, machine.now));
  machine.collect();
  EXPECT_THAT(seen("bob"), IsEmpty());
  EXPECT_THAT(seen("rob"), ElementsAre("own"));
}

TEST_F(RegionsSeen, OfAPublisherThatAReaderOutlivesAreTheReadersMatterNoMore) {
  publish("weights", Sharing::kPublic);
  const SessionId zoe = machine.connect(3);
  map(zoe, "weights");
  for (const OfferedLease& one : grant.leases) {
    machine.driver.hold(one.extent.id);
    machine.held[zoe].push_back(one.extent.id);
  }
  machine.die(bob);
  EXPECT_THAT(page(admin).regions, IsEmpty());
  EXPECT_EQ(machine.charged("zoe"), mebibytes(8));
  EXPECT_THAT(events(Event::Kind::kRegionLost), SizeIs(1));
}

}  // namespace
}  // namespace gpumem::core
