# Flows over one link with RED on ns-2.35, for the speed of the simulators: ns speed.tcl RATE RTT FLOWS END
# NewReno with windows that are not a limit; prints the packets that the link has sent.
foreach {rate rtt flows end} $argv break
set window 10000
set tcp Newreno
set buffer 400
set seed 1
source [file join [file dirname [info script]] common.tcl]
foreach {name value} {thresh_ 60 maxthresh_ 120 q_weight_ 0.02 linterm_ 2} { Queue/RED set $name $value }

set ns [new Simulator]
set r1 [$ns node]
set r2 [$ns node]
set edge [expr {$rtt < 0.1 ? 0.01 : 0.015}]
$ns simplex-link $r1 $r2 $rate [expr $rtt / 2 - 2 * $edge]s RED
$ns simplex-link $r2 $r1 $rate [expr $rtt / 2 - 2 * $edge]s DropTail
$ns queue-limit $r1 $r2 $buffer
for {set i 0} {$i < $flows} {incr i} {
  set s [$ns node]
  set d [$ns node]
  $ns duplex-link $s $r1 100Mb ${edge}s DropTail
  $ns duplex-link $r2 $d 100Mb ${edge}s DropTail
  session $s $d
}
set monitor [$ns monitor-queue $r1 $r2 ""]
$ns at $end {
  puts [$monitor set pdepartures_]
  exit 0
}
$ns run
