/*
 * Compares `abi.h` with libfabric's own header. Nothing here becomes part of a program: a test
 * compiles it where that header is.
 */
#include "abi.h"

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

/* A member lies where the library has it, and has the same size. */
#define MEMBER(ours, member, theirs, original)                                                     \
	_Static_assert(offsetof(struct ours, member) == offsetof(struct theirs, original),         \
		       #ours "." #member);                                                         \
	_Static_assert(sizeof(((struct ours *)0)->member) ==                                       \
			       sizeof(((struct theirs *)0)->original),                             \
		       "the size of " #ours "." #member)
/* A structure that the shim makes has the whole size. */
#define WHOLE(ours, theirs)                                                                        \
	_Static_assert(sizeof(struct ours) == sizeof(struct theirs), "the size of " #ours)
#define CONSTANT(ours, theirs) _Static_assert((uint64_t)(ours) == (uint64_t)(theirs), #ours)

CONSTANT(FAB_RMA, FI_RMA);
CONSTANT(FAB_ATOMIC, FI_ATOMIC);
CONSTANT(FAB_RECV, FI_RECV);
CONSTANT(FAB_TRANSMIT, FI_TRANSMIT);
CONSTANT(FAB_REMOTE_READ, FI_REMOTE_READ);
CONSTANT(FAB_REMOTE_WRITE, FI_REMOTE_WRITE);
CONSTANT(FAB_COMPLETION, FI_COMPLETION);
CONSTANT(FAB_DELIVERY_COMPLETE, FI_DELIVERY_COMPLETE);
CONSTANT(FAB_COMMIT_COMPLETE, FI_COMMIT_COMPLETE);
CONSTANT(FAB_RMA_PMEM, FI_RMA_PMEM);
CONSTANT(FAB_SOURCE, FI_SOURCE);
CONSTANT(FAB_MR_VIRT_ADDR, FI_MR_VIRT_ADDR);
CONSTANT(FAB_MR_ALLOCATED, FI_MR_ALLOCATED);
CONSTANT(FAB_MR_PROV_KEY, FI_MR_PROV_KEY);
CONSTANT(FAB_EP_RDM, FI_EP_RDM);
CONSTANT(FAB_THREAD_SAFE, FI_THREAD_SAFE);
CONSTANT(FAB_PROGRESS_AUTO, FI_PROGRESS_AUTO);
CONSTANT(FAB_PROGRESS_MANUAL, FI_PROGRESS_MANUAL);
CONSTANT(FAB_AV_TABLE, FI_AV_TABLE);
CONSTANT(FAB_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_CONTEXT);
CONSTANT(FAB_WAIT_FD, FI_WAIT_FD);
CONSTANT(FAB_UINT64, FI_UINT64);
CONSTANT(FAB_SUM, FI_SUM);
CONSTANT(FAB_CSWAP, FI_CSWAP);
CONSTANT(FAB_GETWAIT, FI_GETWAIT);
CONSTANT(FAB_ENABLE, FI_ENABLE);
CONSTANT(FAB_EOTHER, FI_EOTHER);
CONSTANT(FAB_EAVAIL, FI_EAVAIL);
CONSTANT(FAB_VERSION_1(17), FI_VERSION(1, 17));

MEMBER(fab_id, class, fid, fclass);
MEMBER(fab_id, context, fid, context);
MEMBER(fab_id, ops, fid, ops);

MEMBER(fab_ops, size, fi_ops, size);
MEMBER(fab_ops, close, fi_ops, close);
MEMBER(fab_ops, bind, fi_ops, bind);
MEMBER(fab_ops, control, fi_ops, control);

MEMBER(fab_info, next, fi_info, next);
MEMBER(fab_info, caps, fi_info, caps);
MEMBER(fab_info, mode, fi_info, mode);
MEMBER(fab_info, address_format, fi_info, addr_format);
MEMBER(fab_info, source_length, fi_info, src_addrlen);
MEMBER(fab_info, destination_length, fi_info, dest_addrlen);
MEMBER(fab_info, source, fi_info, src_addr);
MEMBER(fab_info, destination, fi_info, dest_addr);
MEMBER(fab_info, handle, fi_info, handle);
MEMBER(fab_info, transmit, fi_info, tx_attr);
MEMBER(fab_info, receive, fi_info, rx_attr);
MEMBER(fab_info, ep, fi_info, ep_attr);
MEMBER(fab_info, domain, fi_info, domain_attr);
MEMBER(fab_info, fabric, fi_info, fabric_attr);

MEMBER(fab_ep_attr, type, fi_ep_attr, type);

MEMBER(fab_domain_attr, domain, fi_domain_attr, domain);
MEMBER(fab_domain_attr, name, fi_domain_attr, name);
MEMBER(fab_domain_attr, threading, fi_domain_attr, threading);
MEMBER(fab_domain_attr, control_progress, fi_domain_attr, control_progress);
MEMBER(fab_domain_attr, data_progress, fi_domain_attr, data_progress);
MEMBER(fab_domain_attr, resources, fi_domain_attr, resource_mgmt);
MEMBER(fab_domain_attr, av_type, fi_domain_attr, av_type);
MEMBER(fab_domain_attr, mr_mode, fi_domain_attr, mr_mode);

MEMBER(fab_fabric_attr, fabric, fi_fabric_attr, fabric);
MEMBER(fab_fabric_attr, name, fi_fabric_attr, name);
MEMBER(fab_fabric_attr, provider, fi_fabric_attr, prov_name);

MEMBER(fab_fabric, id, fid_fabric, fid);
MEMBER(fab_fabric, ops, fid_fabric, ops);

MEMBER(fab_fabric_ops, size, fi_ops_fabric, size);
MEMBER(fab_fabric_ops, domain, fi_ops_fabric, domain);
MEMBER(fab_fabric_ops, trywait, fi_ops_fabric, trywait);

MEMBER(fab_domain, id, fid_domain, fid);
MEMBER(fab_domain, ops, fid_domain, ops);
MEMBER(fab_domain, mr, fid_domain, mr);

MEMBER(fab_domain_ops, size, fi_ops_domain, size);
MEMBER(fab_domain_ops, av_open, fi_ops_domain, av_open);
MEMBER(fab_domain_ops, cq_open, fi_ops_domain, cq_open);
MEMBER(fab_domain_ops, endpoint, fi_ops_domain, endpoint);

MEMBER(fab_mr_ops, size, fi_ops_mr, size);
MEMBER(fab_mr_ops, reg, fi_ops_mr, reg);

MEMBER(fab_mr, id, fid_mr, fid);
MEMBER(fab_mr, descriptor, fid_mr, mem_desc);
MEMBER(fab_mr, key, fid_mr, key);

MEMBER(fab_av, id, fid_av, fid);
MEMBER(fab_av, ops, fid_av, ops);

MEMBER(fab_av_attr, type, fi_av_attr, type);
MEMBER(fab_av_attr, rx_ctx_bits, fi_av_attr, rx_ctx_bits);
MEMBER(fab_av_attr, count, fi_av_attr, count);
MEMBER(fab_av_attr, ep_per_node, fi_av_attr, ep_per_node);
MEMBER(fab_av_attr, name, fi_av_attr, name);
MEMBER(fab_av_attr, map_address, fi_av_attr, map_addr);
MEMBER(fab_av_attr, flags, fi_av_attr, flags);
WHOLE(fab_av_attr, fi_av_attr);

MEMBER(fab_av_ops, size, fi_ops_av, size);
MEMBER(fab_av_ops, insert, fi_ops_av, insert);

MEMBER(fab_cq, id, fid_cq, fid);
MEMBER(fab_cq, ops, fid_cq, ops);

MEMBER(fab_cq_attr, size, fi_cq_attr, size);
MEMBER(fab_cq_attr, flags, fi_cq_attr, flags);
MEMBER(fab_cq_attr, format, fi_cq_attr, format);
MEMBER(fab_cq_attr, wait_object, fi_cq_attr, wait_obj);
MEMBER(fab_cq_attr, signaling_vector, fi_cq_attr, signaling_vector);
MEMBER(fab_cq_attr, wait_condition, fi_cq_attr, wait_cond);
MEMBER(fab_cq_attr, wait_set, fi_cq_attr, wait_set);
WHOLE(fab_cq_attr, fi_cq_attr);

MEMBER(fab_cq_entry, context, fi_cq_entry, op_context);
WHOLE(fab_cq_entry, fi_cq_entry);

MEMBER(fab_cq_error, context, fi_cq_err_entry, op_context);
MEMBER(fab_cq_error, flags, fi_cq_err_entry, flags);
MEMBER(fab_cq_error, length, fi_cq_err_entry, len);
MEMBER(fab_cq_error, buffer, fi_cq_err_entry, buf);
MEMBER(fab_cq_error, data, fi_cq_err_entry, data);
MEMBER(fab_cq_error, tag, fi_cq_err_entry, tag);
MEMBER(fab_cq_error, overflow, fi_cq_err_entry, olen);
MEMBER(fab_cq_error, error, fi_cq_err_entry, err);
MEMBER(fab_cq_error, provider_error, fi_cq_err_entry, prov_errno);
MEMBER(fab_cq_error, error_data, fi_cq_err_entry, err_data);
MEMBER(fab_cq_error, error_data_size, fi_cq_err_entry, err_data_size);

MEMBER(fab_cq_ops, size, fi_ops_cq, size);
MEMBER(fab_cq_ops, read, fi_ops_cq, read);
MEMBER(fab_cq_ops, readerr, fi_ops_cq, readerr);

MEMBER(fab_ep, id, fid_ep, fid);
MEMBER(fab_ep, ops, fid_ep, ops);
MEMBER(fab_ep, cm, fid_ep, cm);
MEMBER(fab_ep, messages, fid_ep, msg);
MEMBER(fab_ep, rma, fid_ep, rma);
MEMBER(fab_ep, tagged, fid_ep, tagged);
MEMBER(fab_ep, atomic, fid_ep, atomic);

MEMBER(fab_cm_ops, size, fi_ops_cm, size);
MEMBER(fab_cm_ops, getname, fi_ops_cm, getname);

MEMBER(fab_rma_iov, address, fi_rma_iov, addr);
MEMBER(fab_rma_iov, length, fi_rma_iov, len);
MEMBER(fab_rma_iov, key, fi_rma_iov, key);
WHOLE(fab_rma_iov, fi_rma_iov);

MEMBER(fab_rma_message, local, fi_msg_rma, msg_iov);
MEMBER(fab_rma_message, descriptors, fi_msg_rma, desc);
MEMBER(fab_rma_message, local_count, fi_msg_rma, iov_count);
MEMBER(fab_rma_message, peer, fi_msg_rma, addr);
MEMBER(fab_rma_message, remote, fi_msg_rma, rma_iov);
MEMBER(fab_rma_message, remote_count, fi_msg_rma, rma_iov_count);
MEMBER(fab_rma_message, context, fi_msg_rma, context);
MEMBER(fab_rma_message, data, fi_msg_rma, data);
WHOLE(fab_rma_message, fi_msg_rma);

MEMBER(fab_rma_ops, size, fi_ops_rma, size);
MEMBER(fab_rma_ops, read, fi_ops_rma, read);
MEMBER(fab_rma_ops, writemsg, fi_ops_rma, writemsg);

MEMBER(fab_atomic_ops, size, fi_ops_atomic, size);
MEMBER(fab_atomic_ops, readwrite, fi_ops_atomic, readwrite);
MEMBER(fab_atomic_ops, compwrite, fi_ops_atomic, compwrite);
