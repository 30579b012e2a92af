"""Redirection: the kernel's rules that send an application's connections to its sidecar.

A `Plan` (plan.py) states what is redirected and what is not. It becomes rules of
iptables, as Linkerd's init container installs them (iptables.py), or a table
of nftables for machines without Kubernetes (nftables.py). firewall.py applies
them: all of them or none. Nothing of a running sidecar imports this package.
"""
