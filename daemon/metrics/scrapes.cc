#include "daemon/metrics/scrapes.h"

#include <boost/beast/http/verb.hpp>
#include <string_view>
#include <utility>

#include "daemon/core/words/refusals.h"

namespace gpumem::metrics {
namespace {

namespace beast = boost::beast::http;

constexpr const char* kOpenMetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8";
constexpr const char* kPath = "/metrics";

void answer(const http::Request& request, const std::function<void(Exposition::Then)>& text,
            http::HttpServer::Respond respond) {
  const std::string_view target(request.target().data(), request.target().size());
  if (request.method() != beast::verb::get && request.method() != beast::verb::head) {
    http::Answer refused = http::plain_answer(405);
    refused.fields.emplace_back("Allow", "GET, HEAD");
    refused.is_last = true;
    return respond(std::move(refused));
  }
  if (target.substr(0, target.find('?')) != kPath)
    return respond(http::plain_answer(404, "the metrics are at /metrics"));
  text([respond = std::move(respond)](http::Text body) {
    if (body) return respond({.body = std::move(body), .fields = {{"Content-Type", kOpenMetrics}}});
    http::Answer none = http::plain_answer(503);
    none.is_last = true;
    respond(std::move(none));
  });
}

void refuse_pod(const http::Request&, const http::HttpServer::Respond& respond) {
  http::Answer refused = http::plain_answer(403,
                                            "the metrics name all tenants, so processes of pods do not read "
                                            "them here; [metrics] listen opens a port");
  refused.is_last = true;
  respond(std::move(refused));
}

}  // namespace

http::HttpServer::Options serving(Scrapes scrapes) {
  const auto handle = [text = std::move(scrapes.text)](const http::Request& request,
                                                       http::HttpServer::Respond respond) {
    answer(request, text, std::move(respond));
  };
  return {.sockets = std::move(scrapes.sockets),
          .admit = [handle, is_reserved = std::move(scrapes.is_reserved),
                    is_of_pod = std::move(scrapes.is_of_pod)](int connection) -> http::HttpServer::Handle {
            if (is_reserved(connection)) {
              core::count_refusal(core::Bound::kDescriptors);
              return nullptr;
            }
            if (is_of_pod(connection)) return refuse_pod;
            return handle;
          },
          .made_room = [] { core::count_refusal(core::Bound::kMetricsConnections); }};
}

}  // namespace gpumem::metrics
