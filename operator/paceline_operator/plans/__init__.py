"""What should exist and what to do about it: pure functions over what was observed.

    observe_child(manifest) -> Live          differs(desired, live) -> bool      pod_trouble(pod) -> Trouble | None
    plan_service(view) -> Plan               plan_namespace(view) -> Plan        Names().put/remove/taken_by
    plan_tenant / plan_route / plan_profile(...) -> status | None                plan_keys(view) -> KeysPlan
"""
