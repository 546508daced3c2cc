/* A libfabric whose provider is a card that reads and writes memory of devices. It is another one
 * (CARD_LIBRARY) over which it lays what such a card has: FI_HMEM, a NIC, and registration of
 * memory by a file (FI_MR_DMABUF), which it maps. So bytes really go from one device's memory to
 * another's, by a real provider, while nobody else can touch them. CARD_REFUSES: "registrations",
 * or "reads" of memory of a device after the first few. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define REGISTER_FILE (1ULL << 40)
struct file_range {
  int fd;
  uint64_t offset;
  size_t bytes;
  char* base;
};

struct registration {
  struct registration* next;
  struct fid_mr* mr;
  struct fi_ops* ops; /* the provider's */
  struct fi_ops changed;
  char* named; /* where it begins for whoever registered it */
  char* mapped;
  size_t bytes, whole;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct registration* registrations;
static struct fid_nic card;
static struct fi_ops_mr mr_ops, *real_mr_ops;
static struct fi_ops_rma rma_ops, *real_rma_ops;
static struct fi_ops_domain domain_ops, *real_domain_ops;
static struct fi_ops_fabric fabric_ops, *real_fabric_ops;
static unsigned long long bytes_read, registered;

static void* real(const char* name) {
  static void* library;
  const char* const path = getenv("CARD_LIBRARY");
  if (library == NULL) library = dlopen(path != NULL ? path : "libfabric.so.1", RTLD_NOW);
  return library == NULL ? NULL : dlsym(library, name);
}

static int refuses(const char* what) {
  const char* const text = getenv("CARD_REFUSES");
  return text != NULL && strcmp(text, what) == 0;
}

/* For tests: registrations of a device's memory now, and ever; bytes that were read into such
 * memory. */
int card_registrations(void) {
  int count = 0;
  pthread_mutex_lock(&mutex);
  for (struct registration* one = registrations; one != NULL; one = one->next) ++count;
  pthread_mutex_unlock(&mutex);
  return count;
}
unsigned long long card_registered(void) { return registered; }
unsigned long long card_bytes_read(void) { return bytes_read; }

static int mr_close(struct fid* fid) {
  pthread_mutex_lock(&mutex);
  struct registration** at = &registrations;
  while (&(*at)->mr->fid != fid) at = &(*at)->next;
  struct registration* const one = *at;
  *at = one->next;
  pthread_mutex_unlock(&mutex);
  fid->ops = one->ops;
  const int status = fid->ops->close(fid);
  munmap(one->mapped, one->whole);
  free(one);
  return status;
}

static int mr_regattr(struct fid* fid, const struct fi_mr_attr* attr, uint64_t flags,
                      struct fid_mr** mr) {
  if ((flags & REGISTER_FILE) == 0) return real_mr_ops->regattr(fid, attr, flags, mr);
  if (refuses("registrations")) return -FI_ENOSYS;
  const struct file_range* const range = (const struct file_range*)attr->mr_iov;
  const size_t whole = range->offset + range->bytes;
  char* const mapped = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED, range->fd, 0);
  if (mapped == MAP_FAILED) return -FI_ENOMEM;
  const int status = real_mr_ops->reg(fid, mapped + range->offset, range->bytes, attr->access, 0,
                                      attr->requested_key, 0, mr, attr->context);
  if (status != 0) return munmap(mapped, whole), status;
  struct registration* const one = calloc(1, sizeof *one);
  one->mr = *mr;
  one->ops = (*mr)->fid.ops;
  one->changed = *one->ops;
  one->changed.close = mr_close;
  (*mr)->fid.ops = &one->changed;
  one->named = range->base + range->offset;
  one->mapped = mapped;
  one->bytes = range->bytes;
  one->whole = whole;
  pthread_mutex_lock(&mutex);
  one->next = registrations;
  registrations = one;
  ++registered;
  pthread_mutex_unlock(&mutex);
  return 0;
}

static ssize_t rma_read(struct fid_ep* ep, void* buf, size_t len, void* desc, fi_addr_t from,
                        uint64_t addr, uint64_t key, void* context) {
  char* into = buf;
  pthread_mutex_lock(&mutex);
  for (struct registration* one = registrations; one != NULL; one = one->next) {
    const size_t before = one->whole - one->bytes;
    if (into < one->named || into + len > one->named + one->bytes) continue;
    into = one->mapped + before + (into - one->named);
    bytes_read += len;
    break;
  }
  pthread_mutex_unlock(&mutex);
  if (into != (char*)buf && refuses("reads") && bytes_read > (4 << 20)) return -FI_EIO;
  return real_rma_ops->read(ep, into, len, desc, from, addr, key, context);
}

/* As the provider below knows it. */
static struct fi_info* plain(struct fi_info* info) {
  struct fi_info* (*const dup)(const struct fi_info*) = real("fi_dupinfo");
  struct fi_info without = *info;
  without.nic = NULL;
  struct fi_info* const made = dup(&without);
  made->caps &= ~FI_HMEM;
  if (made->tx_attr) made->tx_attr->caps &= ~FI_HMEM;
  if (made->rx_attr) made->rx_attr->caps &= ~FI_HMEM;
  made->domain_attr->caps &= ~FI_HMEM;
  made->domain_attr->mr_mode &= ~FI_MR_HMEM;
  return made;
}

static void real_free(struct fi_info* info) {
  void (*const freeinfo)(struct fi_info*) = real("fi_freeinfo");
  freeinfo(info);
}

static int open_endpoint(struct fid_domain* domain, struct fi_info* info, struct fid_ep** ep,
                         void* context) {
  struct fi_info* const its = plain(info);
  const int status = real_domain_ops->endpoint(domain, its, ep, context);
  real_free(its);
  if (status != 0 || (*ep)->rma == NULL) return status;
  real_rma_ops = (*ep)->rma;
  rma_ops = *real_rma_ops;
  rma_ops.read = rma_read;
  (*ep)->rma = &rma_ops;
  return 0;
}

static int open_domain(struct fid_fabric* fabric, struct fi_info* info, struct fid_domain** domain,
                       void* context) {
  struct fi_info* const its = plain(info);
  const int status = real_fabric_ops->domain(fabric, its, domain, context);
  real_free(its);
  if (status != 0) return status;
  real_mr_ops = (*domain)->mr;
  mr_ops = *real_mr_ops;
  mr_ops.regattr = mr_regattr;
  (*domain)->mr = &mr_ops;
  real_domain_ops = (*domain)->ops;
  domain_ops = *real_domain_ops;
  domain_ops.endpoint = open_endpoint;
  (*domain)->ops = &domain_ops;
  return 0;
}

int fi_fabric(struct fi_fabric_attr* attr, struct fid_fabric** fabric, void* context) {
  int (*const open)(struct fi_fabric_attr*, struct fid_fabric**, void*) = real("fi_fabric");
  const int status = open(attr, fabric, context);
  if (status != 0) return status;
  real_fabric_ops = (*fabric)->ops;
  fabric_ops = *real_fabric_ops;
  fabric_ops.domain = open_domain;
  (*fabric)->ops = &fabric_ops;
  return 0;
}

/* Places in registered memory are counted from its beginning: where the other process has it mapped
 * nobody knows. */
int fi_getinfo(uint32_t version, const char* node, const char* service, uint64_t flags,
               const struct fi_info* hints, struct fi_info** info) {
  int (*const get)(uint32_t, const char*, const char*, uint64_t, const struct fi_info*,
                   struct fi_info**) = real("fi_getinfo");
  (void)version;
  const int devices = (hints->caps & FI_HMEM) != 0;
  struct fi_info* const asked = plain((struct fi_info*)hints);
  asked->domain_attr->mr_mode &= ~FI_MR_VIRT_ADDR;
  const int status = get(FI_VERSION(1, 17), node, service, flags, asked, info);
  real_free(asked);
  for (struct fi_info* one = status == 0 ? *info : NULL; one != NULL; one = one->next) {
    one->nic = &card;
    if (!devices) continue;
    one->caps |= FI_HMEM;
    one->domain_attr->mr_mode |= FI_MR_HMEM;
  }
  return status;
}

void fi_freeinfo(struct fi_info* info) {
  for (struct fi_info* one = info; one != NULL; one = one->next) one->nic = NULL;
  real_free(info);
}

struct fi_info* fi_dupinfo(const struct fi_info* info) {
  struct fi_info* (*const dup)(const struct fi_info*) = real("fi_dupinfo");
  if (info == NULL) return dup(NULL);
  struct fi_info without = *info;
  without.nic = NULL;
  struct fi_info* const made = dup(&without);
  made->nic = info->nic;
  return made;
}

uint32_t fi_version(void) { return FI_VERSION(1, 20); }

const char* fi_strerror(int number) {
  const char* (*const text)(int) = real("fi_strerror");
  return text(number);
}
