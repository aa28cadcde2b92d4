# Fifty flows over 20 Mbit/s on ns-2.35: ns dumbbell.tcl RTT WINDOW TCP QUEUE BUFFER FLOWS SEED
# Prints for the time from 50 to 200 s: the mean queue [packets], drops, arrivals, departures, and the goodput of all flows [bit/s].
foreach {rtt window tcp queue buffer flows seed} $argv break
source [file join [file dirname [info script]] common.tcl]
Queue/RED set thresh_ 60
Queue/RED set maxthresh_ 120
Queue/RED set q_weight_ 0.02
Queue/RED set linterm_ 2
# Adaptive RED of Floyd et al. 2001, whose lower bound of max_p is 0.01; by default ns-2 lowers it with the link's rate.
if {$queue == "ARED"} {
  foreach {name value} {thresh_ 40 q_weight_ 0.002 linterm_ 10 gentle_ true wait_ false adaptive_ 1 bottom_ 0.01} { Queue/RED set $name $value }
  set queue RED
}
foreach {name value} {qref_ 90 bytes_ false queue_in_bytes_ false mean_pktsize_ 1040 setbit_ false} {
  Queue/PI set $name $value
}
foreach {name value} {pbo_ 90 gamma_ 0.001 phi_ 1.001 pupdtime_ 0.002 inw_ 1 mean_pktsize_ 1040 setbit_ false} {
  Queue/REM set $name $value
}
foreach {name value} {gamma_ 0.98 buflim_ 1 mean_pktsize_ 1040 markpkts_ false queue_in_bytes_ false} {
  Queue/Vq set $name $value
}

set ns [new Simulator]
set r1 [$ns node]
set r2 [$ns node]
set edge [expr {$rtt < 0.1 ? 0.01 : 0.015}]
set middle [expr $rtt / 2 - 2 * $edge]
$ns simplex-link $r1 $r2 20Mb ${middle}s $queue
$ns simplex-link $r2 $r1 20Mb ${middle}s DropTail
$ns queue-limit $r1 $r2 $buffer
for {set i 0} {$i < $flows} {incr i} {
  set s [$ns node]
  set d [$ns node]
  $ns duplex-link $s $r1 100Mb ${edge}s DropTail
  $ns duplex-link $r2 $d 100Mb ${edge}s DropTail
  set t($i) [session $s $d]
}
set monitor [$ns monitor-queue $r1 $r2 ""]
proc counters {} {
  global ns monitor t flows
  set acked 0
  for {set i 0} {$i < $flows} {incr i} { incr acked [$t($i) set ack_] }
  set area [$monitor get-pkts-integrator]
  set open [expr [$monitor set pkts_] * ([$ns now] - [$area set lastx_])]
  return "[expr [$area set sum_] + $open] [$monitor set pdrops_] [$monitor set parrivals_] [$monitor set pdepartures_] $acked"
}
$ns at 50 {set before [counters]}
$ns at 200 "finish"
proc finish {} {
  global before
  foreach old $before new [counters] { lappend grown [expr $new - $old] }
  foreach {area drops arrivals departures acked} $grown break
  puts "[expr $area / 150.0] $drops $arrivals $departures [expr $acked * 8000 / 150.0]"
  exit 0
}
$ns run
