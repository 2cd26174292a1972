#include "tests/unit/kubernetes/certificate.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <functional>
#include <memory>

namespace gpumem::kubernetes::test {
namespace {

std::string pem_of(const std::function<int(BIO*)>& write) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> memory(BIO_new(BIO_s_mem()), BIO_free);
  write(memory.get());
  char* data = nullptr;
  const long size = BIO_get_mem_data(memory.get(), &data);
  return {data, static_cast<std::size_t>(size)};
}

void add_extension(X509* certificate, int kind, const char* value) {
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, kind, value);
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

}  // namespace

Certificate make_certificate() {
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const std::unique_ptr<X509, decltype(&X509_free)> one(X509_new(), X509_free);
  X509_set_version(one.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(one.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(one.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(one.get()), 3600);
  X509_set_pubkey(one.get(), key.get());
  X509_NAME* name = X509_get_subject_name(one.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("test"), -1, -1,
                             0);
  X509_set_issuer_name(one.get(), name);
  add_extension(one.get(), NID_basic_constraints, "critical,CA:TRUE");
  add_extension(one.get(), NID_subject_alt_name, "IP:127.0.0.1");
  X509_sign(one.get(), key.get(), EVP_sha256());
  return {pem_of([&](BIO* memory) { return PEM_write_bio_X509(memory, one.get()); }),
          pem_of([&](BIO* memory) {
            return PEM_write_bio_PrivateKey(memory, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
          })};
}

}  // namespace gpumem::kubernetes::test
